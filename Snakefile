"""AutoMedBench: fetch → stage → agent run → collect → audit → score → judge → leaderboard.

`snakemake -n -p` prints every step as a command that can be run alone; docs/ and config/README.md explain the rest.
"""

from snakemake.utils import min_version

min_version("9.0")


configfile: "config/config.yaml"


include: "rules/common.smk"
include: "rules/data.smk"
include: "rules/containers.smk"
include: "rules/agent.smk"
include: "rules/scoring.smk"
include: "rules/again.smk"
include: "rules/leaderboard.smk"


localrules:
    all,
    prepare,
    all_tasks,
    runs,
    leaderboard,
    partial,
    rescore,
    rejudge,
    fetch_dataset,
    fill_cache,
    build_image,
    judge_answers,
    plan_campaign,
    build_leaderboard,


rule all:
    """The whole campaign: every run scored, leaderboard built."""
    default_target: True
    input:
        rules.build_leaderboard.output,
        get_lost_files,


rule prepare:
    """Everything that agents need: data fetched and staged, images built, the cache filled."""
    input:
        get_manifests,
        []
        if SETTINGS.fixtures
        else [
            *targets.images(CAMPAIGN, CAMPAIGN.images),
            *targets.all_preflights(CAMPAIGN),
        ],
        targets.list_cache_records(CAMPAIGN, rules.fill_cache.output.record),


rule all_tasks:
    """The campaign's agents on the 48 tasks and the user's own, lite and standard: scored, without a leaderboard."""
    input:
        lambda _: targets.fill_pattern(rules.score_run.output.score, CAMPAIGN.all_tasks),


rule runs:
    """Every agent run, not yet scored."""
    input:
        targets.fill_pattern(rules.run_agent.output.run_record, CAMPAIGN.runs),


rule leaderboard:
    """The leaderboard of the whole campaign."""
    input:
        rules.build_leaderboard.output,
        get_lost_files,
