"""Score or judge finished runs again, beside them, and show what would change.

In: the records of every scored run, as files only: nothing of a run is made or repeated. Out: the change of every row.
Fills results/again/, which keeps the table alone. Adopting it: `snakemake --forcerun score_metrics` (or score_judge).
Outputs are temp(), and removed by the script too: Snakemake keeps the inputs of a target that has no output.
"""

AGAIN = f"{CAMPAIGN.settings.results}/again"
ONE = "{agent}/{task}/{tier}/r{repeat}"


rule rescore_metrics:
    """Task metrics of one run with the present scorer."""
    output:
        report=temp(f"{AGAIN}/rescore/{ONE}/detail_report.json"),
    log:
        CAMPAIGN.log("rescore_metrics"),
    conda:
        "../envs/host.yaml"
    params:
        card=CAMPAIGN.card,
        verdicts=CAMPAIGN.verdict_option,
        code=CAMPAIGN.present_code,
    shell:
        "python scripts/score_metrics.py --card {params.card:q} {params.verdicts}"
        + CAMPAIGN.below_run(
            " --submission-record {run}/submission.json --submission {run}/submission"
        )
        + CAMPAIGN.scorer_options
        + " --out {output.report:q} > {log:q} 2>&1"


rule rescore_run:
    """The score with these metrics and the present error codes."""
    input:
        report=rules.rescore_metrics.output.report,
    output:
        score=temp(f"{AGAIN}/rescore/{ONE}/score.json"),
    log:
        CAMPAIGN.log("rescore_run"),
    conda:
        "../envs/host.yaml"
    params:
        card=CAMPAIGN.card,
        code=CAMPAIGN.present_code,
    shell:
        "python scripts/score_run.py --card {params.card:q} --detail-report {input.report:q}"
        + CAMPAIGN.below_run(
            " --run-record {run}/run.json --conversation {run}/conversation.json --audit {run}/audit.json"
            " --submission {run}/submission.json --judge-record {run}/judge.json"
        )
        + " --out {output.score:q} > {log:q} 2>&1"


rule rescore:
    """What the present scorer would change, per run."""
    input:
        scores=CAMPAIGN.scored_again(
            rules.rescore_run.output.score, rules.score_run.output.score
        ),
    log:
        "logs/rescore.log",
    conda:
        "../envs/host.yaml"
    params:
        results=CAMPAIGN.settings.results,
    shell:
        "python scripts/show_changes.py --what rescore --results {params.results:q} 2>&1 | tee {log:q}"


rule rejudge_stages:
    """Judgement of one run with the present judge and rubric."""
    output:
        judgement=temp(f"{AGAIN}/rejudge/{ONE}/judge.json"),
    log:
        CAMPAIGN.log("rejudge_stages"),
    conda:
        "../envs/host.yaml"
    params:
        track=CAMPAIGN.track,
        code=CAMPAIGN.present_code,
    shell:
        "python scripts/score_judge.py --track {params.track}"
        + CAMPAIGN.below_run(
            " --conversation {run}/conversation.json --submission {run}/submission"
        )
        + CAMPAIGN.judge_options
        + " --out {output.judgement:q} > {log:q} 2>&1"


rule rejudge_run:
    """The score with this judgement."""
    input:
        judgement=rules.rejudge_stages.output.judgement,
    output:
        score=temp(f"{AGAIN}/rejudge/{ONE}/score.json"),
    log:
        CAMPAIGN.log("rejudge_run"),
    conda:
        "../envs/host.yaml"
    params:
        card=CAMPAIGN.card,
        code=CAMPAIGN.present_code,
    shell:
        "python scripts/score_run.py --card {params.card:q} --judge-record {input.judgement:q}"
        + CAMPAIGN.below_run(
            " --run-record {run}/run.json --conversation {run}/conversation.json --audit {run}/audit.json"
            " --submission {run}/submission.json --detail-report {run}/detail_report.json"
        )
        + " --out {output.score:q} > {log:q} 2>&1"


rule rejudge:
    """What the present judge and rubric would change, per run."""
    input:
        scores=CAMPAIGN.scored_again(
            rules.rejudge_run.output.score, rules.score_run.output.score
        ),
    log:
        "logs/rejudge.log",
    conda:
        "../envs/host.yaml"
    params:
        results=CAMPAIGN.settings.results,
    shell:
        "python scripts/show_changes.py --what rejudge --results {params.results:q} 2>&1 | tee {log:q}"
