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


LOST_FILES = CAMPAIGN.lost_files(
    str(rules.build_leaderboard.output.page),
    rules.score_run.output.score,
    rules.run_agent.output.run_record,
    rules.run_agent.output.conversation,
    rules.collect_submission.output.submission,
    rules.audit_run.output.audit,
    rules.score_metrics.output.report,
    rules.score_metrics.output.views,
    rules.score_judge.output.judgement,
)


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
    build_image,
    judge_answers,
    plan_campaign,
    build_leaderboard,


rule all:
    """The whole campaign: every run scored, leaderboard built."""
    default_target: True
    input:
        rules.build_leaderboard.output,
        LOST_FILES,


rule prepare:
    """Everything that agents need: data fetched and staged, images built."""
    input:
        CAMPAIGN.manifests(rules.stage_task.output.manifest),
        [] if CAMPAIGN.settings.fixtures else CAMPAIGN.images,
        CAMPAIGN.preflights,


rule all_tasks:
    """The campaign's agents on the 48 tasks and the user's own, lite and standard: scored, without a leaderboard."""
    input:
        CAMPAIGN.all_tasks(rules.score_run.output.score),


rule runs:
    """Every agent run, not yet scored."""
    input:
        CAMPAIGN.run_files(rules.run_agent.output.run_record),


rule leaderboard:
    """The leaderboard of the whole campaign."""
    input:
        rules.build_leaderboard.output,
        LOST_FILES,
