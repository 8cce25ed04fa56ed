"""Scores: task metrics with the effect of the case, judgement, and the row of the leaderboard.

In: submission, private data, conversation, audit. Out: detail report, judgement, score.
The judge waits for the detail report, whose effect of the case on the outputs it is told.
Fills answer_judge.json, detail_report.json, judge.json, score.json in the folder of the run.
"""


rule judge_answers:
    """Ask a model whether open answers mean what the gold says; only tasks whose card says so have this step."""
    input:
        submission=rules.collect_submission.output.submission,
    output:
        verdicts=f"{RUN}/answer_judge.json",
    log:
        f"logs/judge_answers/{RUN_LOG}",
    priority: 1  # what is finished is scored while other agents wait
    conda:
        "../envs/host.yaml"
    params:
        campaign=get_campaign,
        run=subpath(output.verdicts, parent=True),
        version=get_answer_judge_version,
    shell:
        "python scripts/judge_answers.py --campaign {params.campaign:q} --run {params.run:q} --log"


rule score_metrics:
    """Score the submission against the held-out answers; no agent code runs here."""
    input:
        submission=rules.collect_submission.output.submission,
        verdicts=get_answer_verdicts,
        manifest=ancient(f"{SETTINGS.data.manifests}/{{task}}.json"),
    output:
        report=f"{RUN}/detail_report.json",
        views=f"{RUN}/case_views.json",
    log:
        f"logs/score_metrics/{RUN_LOG}",
    priority: 1  # what is finished is scored while other agents wait
    conda:
        "../envs/host.yaml"
    resources:
        batched=1,
    params:
        campaign=get_campaign,
        run=subpath(output.report, parent=True),
        version=get_grading_version,
        shown=get_cases_shown,
    shell:
        "python scripts/score_metrics.py --campaign {params.campaign:q} --run {params.run:q} --log"


rule score_judge:
    """Judge S1 to S3 from conversation and plan, each criterion with its evidence."""
    input:
        conversation=rules.run_agent.output.conversation,
        submission=rules.collect_submission.output.submission,
        report=rules.score_metrics.output.report,
    output:
        judgement=f"{RUN}/judge.json",
    log:
        f"logs/score_judge/{RUN_LOG}",
    priority: 1  # what is finished is scored while other agents wait
    conda:
        "../envs/host.yaml"
    resources:
        **needs.JUDGING,
        batched=int(SETTINGS.judge.kind == "heuristic"),  # a panel is paid, and may wait
    params:
        campaign=get_campaign,
        run=subpath(output.judgement, parent=True),
        version=get_judge_version,
    shell:
        "python scripts/score_judge.py --campaign {params.campaign:q} --run {params.run:q} --log"


rule score_run:
    """Put a run's numbers together: S1 to S5, agentic, task, overall, medal, error codes."""
    input:
        audit=rules.audit_run.output.audit,
        report=rules.score_metrics.output.report,
        judgement=rules.score_judge.output.judgement,
    output:
        score=f"{RUN}/score.json",
    log:
        f"logs/score_run/{RUN_LOG}",
    priority: 1  # what is finished is scored while other agents wait
    conda:
        "../envs/host.yaml"
    resources:
        batched=1,
    params:
        campaign=get_campaign,
        run=subpath(output.score, parent=True),
        version=versions.score_version(CAMPAIGN),
    shell:
        "python scripts/score_run.py --campaign {params.campaign:q} --run {params.run:q} --log"
