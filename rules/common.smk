"""Configuration: loads and checks the campaign, names its files, and answers what the rules ask of a step.

In: config, agents file, cards. Out: CAMPAIGN, and CAMPAIGN_FILE, which the commands read their settings from.
Only what must repeat a step is a param or an input of it. All else (paths, limits, isolation) stands in CAMPAIGN_FILE,
so that raising a limit half-way through a campaign never repeats what is paid for.
"""

import os
import sys

from automedbench.base.console import collect_rarely
from automedbench.base.files import set_sharing
from automedbench.campaign.load import (
    campaign_file,
    lacks_first_run,
    build_campaign_record,
    write_campaign,
)
from automedbench.planning import heads, needs, targets, versions
from automedbench.planning.load import (
    format_options,
    merge,
    parse_keys,
    plan,
    require_writable,
)
from automedbench.planning.profiles import refuse_lost_resources
from automedbench.steps.plan_campaign import write_plan
from snakemake.cli import get_profile_dir
from snakemake_executor_plugin_automedbench.ancient import plan_behind_ancient_inputs
from snakemake_executor_plugin_automedbench.batches import end_batches
from snakemake_executor_plugin_automedbench.locks import keep_locks_of_others
from snakemake_logger_plugin_automedbench.dry_run import print_in_dry_run
from snakemake_logger_plugin_automedbench.end_of_call import print_at_end
from snakemake_logger_plugin_automedbench.outages import watch_outages

if workflow.is_main_process:
    kept = workflow.resource_settings.overwrite_resources
    refuse_lost_resources(sys.argv, os.environ, kept, get_profile_dir)
if "--unlock" in sys.argv:
    heads.refuse_while_head_lives()
    end_batches()
collect_rarely()  # every step of the campaign is planned next
GIVEN = parse_keys(workflow.config_settings.config_args)
CAMPAIGN = plan(merge([config, GIVEN]), workflow.configfiles)

SETTINGS = CAMPAIGN.config
if workflow.is_main_process:
    require_writable(SETTINGS.results)
set_sharing(SETTINGS.share)
CAMPAIGN_FILE = campaign_file(CAMPAIGN)
DATASET_CARDS = build_campaign_record(CAMPAIGN).datasets
CONFIGURATION = format_options(workflow.configfiles, GIVEN)
RUN_ID = "{agent}/{task}/{tier}/r{repeat}"
RUN_LOG = "{agent}/{task}-{tier}-r{repeat}.log"
RUN = f"{SETTINGS.results}/runs/{RUN_ID}"
AGAIN = f"{SETTINGS.results}/again"

if "gpu" in workflow.global_resources:  # places of runs on the GPUs that there are
    workflow.global_resources["gpu"] = (
        workflow.global_resources["gpu"].value * SETTINGS.sandbox.gpu_share
    )

print_in_dry_run(workflow, CAMPAIGN, CONFIGURATION)
plan_behind_ancient_inputs()
keep_locks_of_others(heads.describe_lock)
print_at_end(workflow, CAMPAIGN, f"{RUN}/score.json")


onstart:  # of the call that holds the lock, before its first step; never of a job on a node
    heads.begin_head()
    watch_outages(SETTINGS.results)
    if workflow.local_exec:
        heads.end_steps_at_second_signal()
    write_campaign(CAMPAIGN)
    if lacks_first_run(CAMPAIGN) and any(
        job.rule.name == "run_agent" for job in workflow.dag.needrun_jobs()
    ):
        print(
            "warning: this campaign's hosts, models and jobs were never tried. `automedbench first-run "
            f"{CONFIGURATION}` tries each within ten minutes.",
            flush=True,
        )
    if all(job.rule.name != "plan_campaign" for job in workflow.dag.needrun_jobs()):
        write_plan(CAMPAIGN)  # 'partial' and slices have it without the rule


wildcard_constraints:
    agent=targets.match_any(CAMPAIGN.agents),
    task=targets.match_any(CAMPAIGN.cards),
    dataset=targets.match_any(DATASET_CARDS),
    tier="lite|standard|pro",
    repeat=r"\d+",
    image="[A-Za-z0-9][A-Za-z0-9._-]*",


def get_campaign(wildcards, output):
    """Path of the record; a function with ``output`` is no reason to repeat a step, as Snakemake takes it for a part."""
    return CAMPAIGN_FILE


def get_configuration(wildcards, output):
    return CONFIGURATION


def get_card(wildcards):
    return CAMPAIGN.card_paths[wildcards.task]


def get_dataset_card(wildcards):
    return DATASET_CARDS[wildcards.dataset]


def get_receipt(wildcards):
    return targets.receipt(CAMPAIGN, wildcards.task)


def get_manifest(wildcards):
    """The manifest: a run is repeated for another version of its task, not for another date."""
    if not os.path.exists(f"{RUN}/score.json".format(**wildcards)):
        stage_purged_data(wildcards.task)
    return ancient(f"{SETTINGS.data.manifests}/{wildcards.task}.json")


def get_manifests(wildcards):
    for task in CAMPAIGN.tasks:
        stage_purged_data(task, checked_files=None)
    return targets.manifests(CAMPAIGN, rules.stage_task.output.manifest)


def stage_purged_data(task, **checked_files):
    """Plan to stage a task once more whose files were purged: its manifest is there, so Snakemake would not.

    As with --forcerun, but only for what needs it. It gives the same cases, so that no run is repeated.
    """
    if targets.is_staged_data_missing(CAMPAIGN, task, **checked_files):
        workflow.dag.forcefiles.add(f"{SETTINGS.data.manifests}/{task}.json")
        if targets.is_raw_data_missing(CAMPAIGN, task):
            workflow.dag.forcefiles.add(targets.receipt(CAMPAIGN, task))


def get_preflight(wildcards):
    return ancient(targets.preflights(CAMPAIGN, wildcards.task))


def get_decision(wildcards):
    return targets.decision(RUN.format(**wildcards))


def get_answer_verdicts(wildcards):
    return targets.answer_verdicts(CAMPAIGN, wildcards.task, RUN.format(**wildcards))


def get_cases_shown(wildcards):
    return SETTINGS.leaderboard.count_cases_shown(CAMPAIGN.cards[wildcards.task])


def get_place(wildcards):
    return targets.place(CAMPAIGN, wildcards.dataset)


def get_excerpt(wildcards):
    return targets.excerpt(CAMPAIGN, wildcards.task)


def get_definition(wildcards):
    return SETTINGS.definition(wildcards.image)


def get_requirements(wildcards):
    return SETTINGS.requirements(wildcards.image)


def get_base(wildcards):
    return SETTINGS.image_base(wildcards.image)


def get_images(wildcards):
    """Images of a run, by their records: ancient, as a run is repeated for another recipe, not for another date."""
    return ancient(
        targets.images(CAMPAIGN, [CAMPAIGN.flavour(wildcards.agent), "scorer"])
    )


def get_scorers_needs(wildcards):
    """Inputs that scoring waits for where the run itself, which needs the same, is not repeated; never a reason."""
    manifest = f"{SETTINGS.data.manifests}/{wildcards.task}.json"
    image = targets.images(CAMPAIGN, ["scorer"])
    return ancient([manifest, *image, *targets.preflights(CAMPAIGN, wildcards.task)])


def get_source_version(wildcards):
    return versions.source_version(CAMPAIGN, wildcards.dataset)


def get_staging_version(wildcards):
    return versions.staging_version(CAMPAIGN, wildcards.task)


def get_preflight_version(wildcards):
    return versions.preflight_version(CAMPAIGN, wildcards.task)


def get_run_version(wildcards):
    return versions.run_version(CAMPAIGN, wildcards.agent, wildcards.task)


def get_scoring_version(wildcards):
    return versions.scoring_version(CAMPAIGN, wildcards.task)


def get_grading_version(wildcards):
    return versions.grading_version(CAMPAIGN, wildcards.task)


def get_answer_judge_version(wildcards):
    return versions.answer_judge_version(CAMPAIGN, wildcards.task)


def get_judge_version(wildcards):
    return versions.judge_version(CAMPAIGN, CAMPAIGN.cards[wildcards.task].track)


def get_present_code(wildcards):
    return versions.present_code_version()


def get_scored_again(pattern):
    """Files of the pattern for every run that has a score, as an input function."""
    return lambda wildcards: targets.fill_pattern(
        pattern, targets.list_scored_runs(CAMPAIGN, rules.score_run.output.score)
    )


def get_lost_files(wildcards):
    """Missing files of which something was made; Snakemake would not notice."""
    made = [rules.run_agent, rules.collect_submission, rules.audit_run]
    made += [rules.score_metrics, rules.score_judge]
    patterns = [file for rule in made for file in rule.output if "brief" not in file]
    page, score = rules.build_leaderboard.output.page, rules.score_run.output.score
    return targets.list_lost_files(CAMPAIGN, str(page), score, patterns)
