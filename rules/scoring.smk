"""Scores: task metrics, judgement, and the row of the leaderboard.

In: submission, private data, conversation, audit. Out: detail report, judgement, score.
Fills answer_judge.json, detail_report.json, judge.json, score.json in the folder of the run.
"""


rule judge_answers:
    """Ask a model whether open answers mean what the gold says; only tasks whose card says so have this step."""
    input:
        submission=rules.collect_submission.output.submission,
    output:
        verdicts=f"{RUN}/answer_judge.json",
    log:
        CAMPAIGN.log("judge_answers"),
    conda:
        "../envs/host.yaml"
    params:
        card=CAMPAIGN.card,
        version=CAMPAIGN.answer_judge_version,
    shell:
        "python scripts/judge_answers.py --card {params.card:q} --submission-record {input.submission:q}"
        + CAMPAIGN.below_run(" --submission {run}/submission")
        + CAMPAIGN.answer_judge_options
        + " --out {output.verdicts:q} > {log:q} 2>&1"


rule score_metrics:
    """Score the submission against the held-out answers; no agent code runs here."""
    input:
        submission=rules.collect_submission.output.submission,
        verdicts=CAMPAIGN.answer_verdicts,
    output:
        report=f"{RUN}/detail_report.json",
        views=f"{RUN}/case_views.json",
    log:
        CAMPAIGN.log("score_metrics"),
    conda:
        "../envs/host.yaml"
    params:
        card=CAMPAIGN.card,
        version=CAMPAIGN.scoring_version,
        verdicts=CAMPAIGN.verdict_option,
        views=CAMPAIGN.view_option,
    shell:
        "python scripts/score_metrics.py --card {params.card:q} {params.verdicts}"
        " --submission-record {input.submission:q}"
        + CAMPAIGN.below_run(" --submission {run}/submission")
        + CAMPAIGN.scorer_options
        + " {params.views} --views {output.views:q} --out {output.report:q} > {log:q} 2>&1"


rule score_judge:
    """Judge S1 to S3 from conversation and plan, each criterion with its evidence."""
    input:
        conversation=rules.run_agent.output.conversation,
        submission=rules.collect_submission.output.submission,
    output:
        judgement=f"{RUN}/judge.json",
    log:
        CAMPAIGN.log("score_judge"),
    conda:
        "../envs/host.yaml"
    params:
        track=CAMPAIGN.track,
        version=CAMPAIGN.judge_version,
    shell:
        "python scripts/score_judge.py --conversation {input.conversation:q} --track {params.track}"
        + CAMPAIGN.below_run(" --submission {run}/submission")
        + CAMPAIGN.judge_options
        + " --out {output.judgement:q} > {log:q} 2>&1"


rule score_run:
    """Put a run's numbers together: S1 to S5, agentic, task, overall, medal, error codes."""
    input:
        audit=rules.audit_run.output.audit,
        report=rules.score_metrics.output.report,
        judgement=rules.score_judge.output.judgement,
    output:
        score=f"{RUN}/score.json",
    log:
        CAMPAIGN.log("score_run"),
    conda:
        "../envs/host.yaml"
    params:
        card=CAMPAIGN.card,
        version=CAMPAIGN.score_version,
    shell:
        "python scripts/score_run.py --card {params.card:q} --audit {input.audit:q}"
        " --detail-report {input.report:q} --judge-record {input.judgement:q}"
        + CAMPAIGN.below_run(
            " --run-record {run}/run.json --conversation {run}/conversation.json"
            " --submission {run}/submission.json"
        )
        + " --out {output.score:q} > {log:q} 2>&1"
