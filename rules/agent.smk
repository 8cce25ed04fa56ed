"""The agent's run, and what is taken from it.

In: manifest, public data, image, agent. Out: brief, conversation, run record; submission; audit.
Fills attempts/, workspace, log/, submission/ and their records in the folder of the run.
"""


rule run_agent:
    """Let one agent do one task. Expensive: only a changed agent or task version repeats it, never a date."""
    input:
        manifest=staged,
        preflight=lambda wildcards: ancient(CAMPAIGN.preflight(wildcards)),
        images=ancient(CAMPAIGN.images),
    output:
        brief=f"{RUN}/brief.md",
        conversation=f"{RUN}/conversation.json",
        run_record=f"{RUN}/run.json",
    log:
        CAMPAIGN.log("run_agent"),
    conda:
        "../envs/host.yaml"
    params:
        card=CAMPAIGN.card,
        version=CAMPAIGN.run_version,
    shell:
        "python scripts/run_agent.py --card {params.card:q} --manifest {input.manifest:q}"
        " --agent {wildcards.agent:q} --tier {wildcards.tier} --repeat {wildcards.repeat}"
        + CAMPAIGN.below_run(" --run {run}")
        + CAMPAIGN.run_options
        + " > {log:q} 2>&1"


rule collect_submission:
    """Copy the expected files out of the workspace, and nothing else, and check their form."""
    input:
        run_record=rules.run_agent.output.run_record,
    output:
        submission=f"{RUN}/submission.json",
    log:
        CAMPAIGN.log("collect_submission"),
    conda:
        "../envs/host.yaml"
    params:
        card=CAMPAIGN.card,
        version=CAMPAIGN.scoring_version,
    shell:
        "python scripts/collect_submission.py --card {params.card:q} --run-record {input.run_record:q}"
        + CAMPAIGN.below_run(
            " --workspace {run}/workspace --submission {run}/submission"
        )
        + CAMPAIGN.collect_options
        + " --out {output.submission:q} > {log:q} 2>&1"


rule audit_run:
    """Weigh all evidence of broken rules: clean, warned or disqualified."""
    input:
        submission=rules.collect_submission.output.submission,
        decision=CAMPAIGN.decision,
    output:
        audit=f"{RUN}/audit.json",
    log:
        CAMPAIGN.log("audit_run"),
    conda:
        "../envs/host.yaml"
    params:
        version=CAMPAIGN.policy_version,
        decision=CAMPAIGN.decision_option,
    shell:
        "python scripts/audit_run.py --submission-record {input.submission:q} {params.decision}"
        + CAMPAIGN.below_run(
            " --run-record {run}/run.json --conversation {run}/conversation.json"
            " --log {run}/log --submission {run}/submission"
        )
        + CAMPAIGN.audit_options
        + " --out {output.audit:q} > {log:q} 2>&1"
