"""The leaderboard: tables and the page.

In: every score of the campaign, or those that exist. Out: index.html, tables. Fills results/leaderboard/.
"""

PLAN = f"{SETTINGS.results}/plan.json"


rule plan_campaign:
    """Write down which runs the campaign asks for: before any run, so that 'partial' has it at any time."""
    output:
        plan=PLAN,
    log:
        "logs/plan_campaign.log",
    priority: 100
    conda:
        "../envs/host.yaml"
    params:
        campaign=get_campaign,
        configuration=get_configuration,
        version=versions.plan_version(CAMPAIGN),
    shell:
        "python scripts/plan_campaign.py --campaign {params.campaign:q} {params.configuration} > {log:q} 2>&1"


rule build_leaderboard:
    """Rank the agents once every run of the plan is scored."""
    input:
        # Not as rules.plan_campaign.output: for a rule with such an input Snakemake hashes the whole list of scores
        # once per score: a third of the planning time with 10 000 runs.
        plan=PLAN,
        scores=targets.fill_pattern(rules.score_run.output.score, CAMPAIGN.runs),
    output:
        page=report(
            f"{SETTINGS.results}/leaderboard/index.html",
            caption="../docs/report.rst",
            category="Leaderboard",
        ),
        tables=targets.leaderboard_tables(CAMPAIGN),
    log:
        "logs/build_leaderboard.log",
    conda:
        "../envs/host.yaml"
    params:
        campaign=get_campaign,
        pooling=SETTINGS.pooling,
        confidence=SETTINGS.leaderboard.confidence,
        resamples=SETTINGS.leaderboard.resamples,
    shell:
        "python scripts/build_leaderboard.py --campaign {params.campaign:q} > {log:q} 2>&1"


rule partial:
    """Build the leaderboard from what is finished; its rows are marked provisional. Can always be run.

    Its plan is no input: a call at work keeps it locked until that call ends. Each call writes it at its start.
    """
    log:
        "logs/partial.log",
    conda:
        "../envs/host.yaml"
    params:
        campaign=get_campaign,
    shell:
        "python scripts/build_leaderboard.py --campaign {params.campaign:q} --partial > {log:q} 2>&1"
