"""Score or judge finished runs again, beside them, and show what would change.

In: the records of every scored run, as files only: nothing of a run is made or repeated. Out: the change of every row.
Fills results/again/, which is emptied but for the table. Adopting it: `snakemake --forcerun score_metrics` (or
score_judge).
"""

AGAIN = f"{CAMPAIGN.settings.results}/again"
ONE = "{agent}/{task}/{tier}/r{repeat}"


rule rescore_run:
    """Task metrics and score of one run with the present scorer."""
    output:
        report=temp(f"{AGAIN}/rescore/{ONE}/detail_report.json"),
        score=temp(f"{AGAIN}/rescore/{ONE}/score.json"),
    log:
        CAMPAIGN.log("rescore_run"),
    conda:
        "../envs/host.yaml"
    params:
        card=CAMPAIGN.card,
        verdicts=CAMPAIGN.verdict_option,
    shell:
        f"( {CAMPAIGN.score_metrics_command} --out {{output.report:q}} && {CAMPAIGN.score_run_command}"
        + CAMPAIGN.below_run(" --judge-record {run}/judge.json")
        + " --detail-report {output.report:q} --out {output.score:q} ) > {log:q} 2>&1"


rule rejudge_run:
    """Judgement and score of one run with the present judge and rubric."""
    output:
        judgement=temp(f"{AGAIN}/rejudge/{ONE}/judge.json"),
        score=temp(f"{AGAIN}/rejudge/{ONE}/score.json"),
    log:
        CAMPAIGN.log("rejudge_run"),
    conda:
        "../envs/host.yaml"
    params:
        card=CAMPAIGN.card,
        track=CAMPAIGN.track,
    shell:
        f"( {CAMPAIGN.score_judge_command} --out {{output.judgement:q}} && {CAMPAIGN.score_run_command}"
        + CAMPAIGN.below_run(" --detail-report {run}/detail_report.json")
        + " --judge-record {output.judgement:q} --out {output.score:q} ) > {log:q} 2>&1"


rule rescore:
    """What the present scorer would change, per run."""
    input:
        CAMPAIGN.scored_again(
            rules.rescore_run.output.score, rules.score_run.output.score
        ),
    log:
        "logs/rescore.log",
    conda:
        "../envs/host.yaml"
    params:
        results=CAMPAIGN.settings.results,
    shell:
        "python scripts/show_changes.py rescore --results {params.results:q} 2>&1 | tee {log:q}"


rule rejudge:
    """What the present judge and rubric would change, per run."""
    input:
        CAMPAIGN.scored_again(
            rules.rejudge_run.output.score, rules.score_run.output.score
        ),
    log:
        "logs/rejudge.log",
    conda:
        "../envs/host.yaml"
    params:
        results=CAMPAIGN.settings.results,
    shell:
        "python scripts/show_changes.py rejudge --results {params.results:q} 2>&1 | tee {log:q}"
