"""Score or judge finished runs again, beside them, and show what would change.

In: the records of every scored run, as files only: nothing of a run is made or repeated. Out: the change of every row.
Fills results/again/, which keeps the table alone. Adopting it: `snakemake --forcerun score_metrics` (or score_judge).
Outputs are temp(), and removed by the script too: Snakemake keeps the inputs of a target that has no output.
What a step does not find in its folder below again/ it reads from the run's own.
"""


use rule score_metrics as rescore_metrics with:
    input:
        [],
    output:
        report=temp(f"{AGAIN}/rescore/{RUN_ID}/detail_report.json"),
    log:
        f"logs/rescore_metrics/{RUN_LOG}",
    params:
        version=get_present_code,


use rule score_run as rescore_run with:
    input:
        report=rules.rescore_metrics.output.report,
    output:
        score=temp(f"{AGAIN}/rescore/{RUN_ID}/score.json"),
    log:
        f"logs/rescore_run/{RUN_LOG}",
    params:
        version=get_present_code,


rule rescore:
    """Show what the present scorer would change, per run."""
    input:
        scores=get_scored_again(rules.rescore_run.output.score),
    log:
        "logs/rescore.log",
    conda:
        "../envs/host.yaml"
    params:
        campaign=get_campaign,
        what="rescore",
    shell:
        "python scripts/rescore.py --campaign {params.campaign:q} --what {params.what} 2>&1 | tee {log:q}"


use rule score_judge as rejudge_judge with:
    input:
        [],
    output:
        judgement=temp(f"{AGAIN}/rejudge/{RUN_ID}/judge.json"),
    log:
        f"logs/rejudge_judge/{RUN_LOG}",
    params:
        version=get_present_code,


use rule score_run as rejudge_run with:
    input:
        judgement=rules.rejudge_judge.output.judgement,
    output:
        score=temp(f"{AGAIN}/rejudge/{RUN_ID}/score.json"),
    log:
        f"logs/rejudge_run/{RUN_LOG}",
    params:
        version=get_present_code,


use rule rescore as rejudge with:
    input:
        scores=get_scored_again(rules.rejudge_run.output.score),
    log:
        "logs/rejudge.log",
    params:
        what="rejudge",
