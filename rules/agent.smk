"""The agent's run, and what is taken from it.

In: manifest, public data, image, agent. Out: brief, conversation, run record; submission; audit.
Fills attempts/, workspace, log/, submission/ and their records in the folder of the run.
"""


rule run_agent:
    """Let one agent do one task. Expensive: only another agent, task version, image or network repeats it, no date."""
    input:
        manifest=get_manifest,
        preflight=get_preflight,
        images=get_images,
    output:
        brief=f"{RUN}/brief.md",
        conversation=f"{RUN}/conversation.json",
        run_record=f"{RUN}/run.json",
    log:
        f"logs/run_agent/{RUN_LOG}",
    conda:
        "../envs/host.yaml"
    resources:
        **needs.run_resources(CAMPAIGN),
    params:
        campaign=get_campaign,
        run=subpath(output.run_record, parent=True),
        card=get_card,
        version=get_run_version,
    shell:
        "python scripts/run_agent.py --campaign {params.campaign:q} --run {params.run:q} --log"


rule collect_submission:
    """Take the expected files of what an agent left, and nothing else, and check their form."""
    input:
        run_record=rules.run_agent.output.run_record,
        needed=get_scorers_needs,
    output:
        submission=f"{RUN}/submission.json",
    log:
        f"logs/collect_submission/{RUN_LOG}",
    priority: 1  # what is finished is scored while other agents wait
    conda:
        "../envs/host.yaml"
    resources:
        batched=1,
    params:
        campaign=get_campaign,
        run=subpath(output.submission, parent=True),
        version=get_scoring_version,
    shell:
        "python scripts/collect_submission.py --campaign {params.campaign:q} --run {params.run:q} --log"


rule audit_run:
    """Weigh all evidence of broken rules: clean, warned or disqualified."""
    input:
        submission=rules.collect_submission.output.submission,
        decision=get_decision,
    output:
        audit=f"{RUN}/audit.json",
    log:
        f"logs/audit_run/{RUN_LOG}",
    priority: 1  # what is finished is scored while other agents wait
    conda:
        "../envs/host.yaml"
    resources:
        batched=1,
    params:
        campaign=get_campaign,
        run=subpath(output.audit, parent=True),
        version=versions.policy_version(CAMPAIGN),
    shell:
        "python scripts/audit_run.py --campaign {params.campaign:q} --run {params.run:q} --log"
