"""Columns of every table, their types and meanings, for rows, files, page and docs."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from automedbench.statistics.repeats import REPEAT_COUNTS


@dataclass(frozen=True)
class Column:
    """A column: the type of its values, each of which may be null, and what it means."""

    kind: type
    meaning: str


@dataclass(frozen=True)
class TableText:
    """A table: one sentence about it, and its columns in their order."""

    title: str
    columns: tuple[str, ...]


_RANKING = (
    "rank rank_best rank_worst tie generalises overall overall_low overall_high agentic agentic_low "
    "agentic_high task_score task_low task_high s1 s2 s3 s4 s5 pass_1 pass_3 pass_5 worst_3 worst_5 "
    "failure_rate no_medal_rate n_failed n_disqualified n_no_effect n_contradicting mean_turns mean_wall_s "
    "mean_gpu_held_s mean_gpu_busy_s mean_cpu_s mean_tokens mean_cost_usd n_priced attempts attempts_cost_usd "
    "judge_cost_usd "
    "n_judge_priced n_scored n_planned cells_scored cells_planned min_repeats sufficient provisional other_tasks "
    "other_judge preset sandbox judge mixed outdated made_up signature"
)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _table(title: str, columns: str) -> TableText:
    return TableText(title, _names(columns))


TABLES: dict[str, TableText] = {
    "runs": _table(
        "The ledger: one row per scored run. Every other table can be recomputed from it and the runs' score.json.",
        "agent track task tier repeat model outcome disqualified failed overall agentic task_score s1 s2 s3 s4 s5 "
        "quality_name quality completion_rate valid_rate medal effect effect_value effect_low effect_high effect_p "
        "no_effect effects contradicting made_up model_lock n_case_scores error_codes n_findings "
        "turns wall_s api_s exec_s n_exec n_exec_failed tokens_prompt tokens_cached "
        "tokens_cache_write tokens_cache_write_1h tokens_completion tokens_reasoning "
        "tokens_total tokens_estimated cost_usd attempts attempts_cost_usd "
        "held_s gpu_held_s gpu_lease_s gpu_waited_s gpu_busy_s gpu_idle_s cpu_s peak_memory_mib nodes gpu_models "
        "gpu_drivers sandbox network image_sha256 judge judge_kind other_judge n_judgements "
        "judge_spread_s1 judge_spread_s2 judge_spread_s3 judge_tokens judge_cost_usd preset task_version "
        "draw cases_sha256 track_version rubric_version code_version outdated signature sources",
    ),
    "overall": _table(
        "The headline ranking: one row per agent over all tracks, lite and standard tiers.",
        f"agent {_RANKING}",
    ),
    "tracks": _table(
        "One row per track and agent, ranked within the track; lite and standard tiers.",
        f"agent track {_RANKING}",
    ),
    "tasks": _table(
        "One row per task and agent, ranked within the task; lite and standard tiers.",
        f"agent track task {_RANKING}",
    ),
    "cells": _table(
        "One row per task, tier and agent, ranked within the cell; every tier, pro as well.",
        f"agent track task tier {_RANKING}",
    ),
    "stages": _table(
        "One row per track, agent and stage S1 to S5; lite and standard tiers. An empty track means all tracks.",
        "agent track stage mean low high n_scored n_planned judge_spread n_spread",
    ),
    "tiers": _table(
        "Lite against standard: one row per track and agent, over the tasks scored in both tiers. An empty track means "
        "all tracks.",
        "track agent n_tasks n_lite n_standard agentic_lite agentic_standard agentic_change task_lite task_standard "
        "overall_lite overall_standard",
    ),
    "comparisons": _table(
        "One row per pair of agents, over all tracks and within each: is the difference of their overall scores "
        "real? Only cells that both agents have are compared.",
        "track a b n_cells difference low high p different sufficient sdd n_tasks p_like generalises",
    ),
    "agreement": _table(
        "Agreement of a panel's judgements per stage; no rows when each run was judged once.",
        "track stage measure first second raters units value low high",
    ),
    "errors": _table(
        "Error codes (cause-v2) by track, agent and stage; an empty stage means the whole run.",
        "track agent stage code n_runs n_with_code run_share n_fired fired_share n_by_rule n_by_judge",
    ),
    "error_pairs": _table(
        "How often two error codes occur in the same run.",
        "track first second n_runs n_first n_second n_both jaccard lift",
    ),
    "error_costs": _table(
        "Overall score of runs with and without an error code.",
        "track agent code n_with n_without mean_with mean_without difference n_cells within_difference low high",
    ),
    "error_summary": _table(
        "Error codes per agent and track: totals, knowledge against engineering, recovery.",
        "track agent n_runs n_disqualified n_without_code n_fired n_knowledge n_engineering ratio n_two_or_more "
        "n_recovered recovery_rate",
    ),
    "treatments": _table(
        "Variants of an agent minus the agent itself, their base, over all tracks and within each; only where the "
        "campaign has treatments. Only cells that both have are compared.",
        "track agent treatment quantity n_cells mean_base change low high p different n_scored n_traced n_used "
        "change_used",
    ),
    "skills": _table(
        "Files of their skills that runs opened and tools of their MCP servers that they called, one row per run and "
        "file or tool; only where the campaign has such variants.",
        "agent track task tier repeat file call stage",
    ),
    "faults": _table(
        "Runs under faults, one row per scored run; only where the campaign has some. No other table counts them.",
        "agent fault track task tier repeat met evidence fault_cases said_in said change_unaffected recovered silent",
    ),
    "reliability": _table(
        "Of each agent that is run under faults first a row without a fault, with consistency, predictability and "
        "safety, then one per fault; lite and standard tiers. No part of any score.",
        "agent fault n_runs n_met n_unknown n_said n_fault_recovered n_silent n_cells change low high different "
        "repeat_sd all_medals any_medal n_confident confidence_gap safe_share",
    ),
}
"""Table → what it is."""
OCCASIONAL = frozenset({"treatments", "skills", "faults", "reliability"})
"""Tables that a board without variants lacks."""

RUNS_ON_PAGE = _names(
    "agent track task tier repeat outcome disqualified failed overall agentic task_score s1 s2 s3 s4 s5 medal "
    "effect no_effect effects contradicting made_up model_lock error_codes turns wall_s tokens_total cost_usd "
    "attempts attempts_cost_usd task_version "
    "track_version rubric_version code_version"
)
"""Columns of the ledger that the page shows."""
RUNS_BESIDE = _names(
    "agent task tier repeat overall agentic task_score s1 s2 s3 s4 s5 turns wall_s tokens_total cost_usd"
)
"""Of them those of runs side by side."""

COLUMNS: dict[str, Column] = {
    "agent": Column(str, "name of the agent in the agents file"),
    "track": Column(str, "track of the task; empty: all tracks"),
    "task": Column(str, "id of the task"),
    "tier": Column(str, "lite, standard or pro"),
    "repeat": Column(int, "number of the repeat, from 1"),
    "model": Column(str, "model that the agent is"),
    "rank": Column(int, "1 + number of agents with a higher overall score; empty without a score"),
    "rank_best": Column(int, "1 + agents that are shown to be better on these tasks; empty when insufficient"),
    "rank_worst": Column(int, "rank if all but the agents shown to be worse were better; empty when insufficient"),
    "tie": Column(str, "letters: agents that share one cannot be told apart on these tasks; empty where no pair can"),
    "overall": Column(float, "(agentic + task score) / 2"),
    "overall_low": Column(float, "lower end of the interval of the overall score; empty below three repeats"),
    "overall_high": Column(float, "upper end of the interval of the overall score; empty below three repeats"),
    "agentic": Column(float, "0.25·S1 + 0.15·S2 + 0.35·S3 + 0.15·S4 + 0.10·S5"),
    "agentic_low": Column(float, "lower end of the interval of the agentic half"),
    "agentic_high": Column(float, "upper end of the interval of the agentic half"),
    "task_score": Column(float, "quality × completion rate (a missing case counts 0, never twice)"),
    "task_low": Column(float, "lower end of the interval of the task half"),
    "task_high": Column(float, "upper end of the interval of the task half"),
    "s1": Column(float, "stage S1, plan (judged)"),
    "s2": Column(float, "stage S2, set up (judged)"),
    "s3": Column(float, "stage S3, validate (judged)"),
    "s4": Column(float, "stage S4, run (computed)"),
    "s5": Column(float, "stage S5, submit (computed)"),
    "pass_1": Column(float, "share of the repeats of a cell that win a medal (okay or good)"),
    **{
        f"pass_{k}": Column(
            float, f"probability that {k} repeats of a cell, drawn from those scored, all win a medal; empty below {k}"
        )
        for k in REPEAT_COUNTS[1:]
    },
    **{
        f"worst_{k}": Column(
            float, f"expected lowest overall score of {k} repeats of a cell, drawn from those scored; empty below {k}"
        )
        for k in REPEAT_COUNTS[1:]
    },
    "failure_rate": Column(float, "share of runs without a complete final submission; a disqualified run has none"),
    "no_medal_rate": Column(
        float,
        "share of runs without a medal (fail or disqualified): the failure rate of the synthesis track on the "
        "benchmark's site",
    ),
    "n_failed": Column(int, "number of runs without a complete final submission"),
    "n_no_effect": Column(int, "number of runs on whose outputs their case has no effect"),
    "n_contradicting": Column(int, "number of runs with a medal whose reports contradict the references too often"),
    "n_disqualified": Column(int, "number of disqualified runs; they count 0 in every score"),
    "mean_turns": Column(float, "turns per run (mean)"),
    "mean_wall_s": Column(float, "wall-clock seconds per run (mean)"),
    "mean_tokens": Column(float, "prompt and completion tokens per run (mean)"),
    "mean_cost_usd": Column(
        Decimal, "cost per run in USD (mean over runs with a known price; unknown is not 0); the judge's is apart"
    ),
    "attempts": Column(int, "attempts at the run up to the one that counts (in rows of agents the sum over runs)"),
    "attempts_cost_usd": Column(
        Decimal, "of all of them in USD, failed ones included (in rows of agents a mean per run); empty: price unknown"
    ),
    "n_priced": Column(int, "number of runs with a known price"),
    "mean_gpu_held_s": Column(
        float, "seconds for which a run held GPUs, × their number (mean over runs that held some)"
    ),
    "mean_gpu_busy_s": Column(float, "seconds in which these computed (mean over runs where that is known)"),
    "mean_cpu_s": Column(float, "CPU seconds per run, of driver and agent's code (mean over runs where that is known)"),
    "judge_cost_usd": Column(
        Decimal, "of the judge, in USD, apart from what the run cost (in rows of agents a mean per run)"
    ),
    "n_judge_priced": Column(int, "number of runs whose judge has a known price"),
    "n_scored": Column(int, "scored runs, the n of n/N"),
    "n_planned": Column(int, "planned runs, the N of n/N"),
    "cells_scored": Column(int, "task × tier cells with a scored run"),
    "cells_planned": Column(int, "task × tier cells with a planned run"),
    "min_repeats": Column(int, "smallest number of scored repeats of any cell with a score"),
    "sufficient": Column(bool, "there are at least three repeats in each cell: intervals and tests can be had"),
    "provisional": Column(bool, "not every planned run is scored"),
    "other_tasks": Column(bool, "planned on other tasks or tiers than most agents of the table, and so without a rank"),
    "other_judge": Column(
        bool, "judged otherwise than the preset's published rows, and so without a rank beside rows of their judge"
    ),
    "preset": Column(str, "named setting of the campaign; rows of different ones never rank together"),
    "sandbox": Column(str, "what isolated the runs: backend/network"),
    "judge": Column(str, "who judged: kind (id); kinds are never mixed in a table"),
    "mixed": Column(
        str, "conditions that differ between the runs of this row, so that they should not be compared silently"
    ),
    "outdated": Column(
        str,
        "conditions under which runs were not made or scored as the campaign asks now: repeat them before comparing",
    ),
    "signature": Column(
        str, "conditions of the runs in one line (automedbench explain-signature); mixed: those that are not the same"
    ),
    "made_up": Column(bool, "runs on made-up data (a rehearsal): the numbers mean nothing"),
    "model_lock": Column(str, "of lite runs: kept, violated or unknown, whether the given checkpoint was used"),
    "outcome": Column(str, "how the run ended"),
    "disqualified": Column(bool, "every score is 0"),
    "failed": Column(bool, "no complete final submission"),
    "quality_name": Column(str, "the track's metric"),
    "quality": Column(float, "the track's metric over all expected cases"),
    "completion_rate": Column(float, "share of expected cases with a prediction that can be read"),
    "valid_rate": Column(float, "share of expected cases with a valid prediction"),
    "medal": Column(
        str,
        "good or okay by the task's thresholds, of complete and valid runs that beat constant answers; else fail, or "
        "disqualified",
    ),
    "effect": Column(str, "effect of the case on the outputs, as measured: shown, none or unclear"),
    "effect_value": Column(float, "quality of outputs on their own answers minus that on other cases' answers"),
    "effect_low": Column(float, "lower end of its 95 % interval"),
    "effect_high": Column(float, "upper end of its 95 % interval"),
    "effect_p": Column(float, "one-sided p of a permutation test of the effect"),
    "no_effect": Column(bool, "no effect of the case: as measured, as an operator decided, or as no input was opened"),
    "effects": Column(str, "counted: a run without an effect earns less; shown_only: it is marked; empty: unknown"),
    "contradicting": Column(
        float, "share of the reports' statements that contradict the references, where it is above 0.1; never counted"
    ),
    "n_case_scores": Column(
        int, "cases whose share of the task score is known (score.json, case_scores); 0: no mean over cases"
    ),
    "error_codes": Column(str, "error codes of the run, separated by blanks"),
    "n_findings": Column(int, "findings of the audit"),
    "turns": Column(int, "turns of the conversation"),
    "wall_s": Column(float, "wall-clock seconds"),
    "api_s": Column(float, "seconds that waited for the model"),
    "exec_s": Column(float, "seconds that code ran"),
    "n_exec": Column(int, "code calls"),
    "n_exec_failed": Column(int, "code calls that failed"),
    "tokens_prompt": Column(int, "prompt tokens"),
    "tokens_cached": Column(int, "of these, served from the provider's cache"),
    "tokens_cache_write": Column(int, "of the prompt tokens, written to the provider's cache"),
    "tokens_cache_write_1h": Column(int, "of these, to be kept longer, an hour or more"),
    "tokens_completion": Column(int, "completion tokens"),
    "tokens_reasoning": Column(int, "of these, reasoning"),
    "tokens_total": Column(int, "prompt and completion tokens"),
    "tokens_estimated": Column(bool, "a reply came without usage and characters / 4 was taken"),
    "cost_usd": Column(Decimal, "cost in USD by the dated price list; empty: price unknown"),
    "held_s": Column(float, "wall-clock seconds of the run's processes, or of their Slurm jobs"),
    "gpu_held_s": Column(
        float, "the same × GPUs of the run, divided by the runs that share them; empty: no GPU, or not known"
    ),
    "gpu_lease_s": Column(float, "seconds of its turns on shared GPUs; empty: none were shared"),
    "gpu_waited_s": Column(float, "seconds in which it waited for these turns, outside of its time"),
    "gpu_busy_s": Column(float, "seconds in which these GPUs computed, all together; empty: no GPU, or not known"),
    "gpu_idle_s": Column(float, "longest time in seconds in which one of them did not compute; empty: as before"),
    "cpu_s": Column(float, "CPU seconds of driver and agent's code"),
    "peak_memory_mib": Column(int, "most memory in use, in MiB; run.json says of what (used.told_by)"),
    "nodes": Column(str, "machines of the run"),
    "gpu_models": Column(str, "its GPUs"),
    "gpu_drivers": Column(str, "versions of their driver"),
    "network": Column(str, "network class of the run: sealed, proxied or open"),
    "image_sha256": Column(str, "digest of the container image; empty without one"),
    "judge_kind": Column(str, "heuristic or llm"),
    "n_judgements": Column(int, "judgements that S1 to S3 are a mean of"),
    "judge_spread_s1": Column(float, "standard deviation between the judgements of S1; empty for one"),
    "judge_spread_s2": Column(float, "standard deviation between the judgements of S2; empty for one"),
    "judge_spread_s3": Column(float, "standard deviation between the judgements of S3; empty for one"),
    "judge_tokens": Column(int, "tokens of the judge, apart from the run's"),
    "task_version": Column(int, "version of the task card"),
    "draw": Column(int, "seed of the fresh draw that the cases are; empty: the published draw"),
    "cases_sha256": Column(str, "digest of the staged cases"),
    "track_version": Column(int, "version of the track's scorer"),
    "rubric_version": Column(int, "version of the rubric"),
    "code_version": Column(str, "version of automedbench"),
    "sources": Column(
        str, "digest of the digests of the records that were scored (score.json, sources); see automedbench verify"
    ),
    "stage": Column(str, "S1 to S5; empty: the whole run"),
    "mean": Column(float, "mean of the stage score, pooled as everything"),
    "low": Column(float, "lower end of the interval; empty when insufficient"),
    "high": Column(float, "upper end of the interval; empty when insufficient"),
    "judge_spread": Column(float, "mean over runs of the standard deviation between judgements; empty without a panel"),
    "n_spread": Column(int, "number of runs that judge_spread rests on"),
    "a": Column(str, "the first agent"),
    "b": Column(str, "the second agent"),
    "n_tasks": Column(int, "tasks with scored runs in both tiers, or of both agents"),
    "n_lite": Column(int, "scored runs of these tasks in the lite tier"),
    "n_standard": Column(int, "scored runs of these tasks in the standard tier"),
    "agentic_lite": Column(float, "agentic half in the lite tier"),
    "agentic_standard": Column(float, "agentic half in the standard tier"),
    "agentic_change": Column(float, "agentic_lite / agentic_standard − 1; empty where the latter is 0"),
    "task_lite": Column(float, "task half in the lite tier"),
    "task_standard": Column(float, "task half in the standard tier"),
    "overall_lite": Column(float, "overall score in the lite tier"),
    "overall_standard": Column(float, "overall score in the standard tier"),
    "n_cells": Column(int, "cells (task × tier) that the figure rests on"),
    "difference": Column(float, "score of a minus score of b; of an error code: runs with it minus runs without it"),
    "p": Column(float, "two-sided p on these tasks, corrected for all pairs of the same track (or of all tracks)"),
    "different": Column(bool, "on these tasks: p is below 1 − confidence, and the interval excludes 0"),
    "sdd": Column(float, "smallest true difference on these tasks that this design finds with 80 % power"),
    "p_like": Column(float, "two-sided p on tasks like these, corrected for all pairs; empty below six tasks"),
    "generalises": Column(
        bool, "different on tasks like these as well; of an agent: in all its differences, empty without one"
    ),
    "measure": Column(
        str, "alpha: Krippendorff's α of all raters (interval scale); kappa: quadratically weighted κ of two"
    ),
    "first": Column(str, "the first rater (<judge>#<repeat>) or error code; empty for the whole panel"),
    "second": Column(str, "the second rater or error code; empty for the whole panel"),
    "raters": Column(int, "number of raters"),
    "units": Column(int, "runs that at least two raters judged"),
    "value": Column(float, "the coefficient: 1 is perfect agreement, 0 that of chance; empty where nothing varies"),
    "code": Column(str, "E1 to E5 of the taxonomy cause-v2"),
    "n_runs": Column(int, "runs"),
    "n_with_code": Column(int, "runs with the code"),
    "run_share": Column(float, "n_with_code / n_runs"),
    "n_fired": Column(int, "different (run, code) pairs"),
    "fired_share": Column(float, "share of the code among all fired codes, as the paper counts"),
    "n_by_rule": Column(int, "codes found by a deterministic detector"),
    "n_by_judge": Column(int, "codes assigned by a judge with a quote"),
    "n_first": Column(int, "runs with the first code"),
    "n_second": Column(int, "runs with the second code"),
    "n_both": Column(int, "runs with both codes"),
    "jaccard": Column(float, "n_both / runs with either"),
    "lift": Column(float, "n_both against what chance would give (1: independent)"),
    "n_with": Column(int, "runs with the code"),
    "n_without": Column(int, "runs without the code"),
    "mean_with": Column(float, "mean overall score of runs with the code"),
    "mean_without": Column(float, "mean overall score of runs without the code"),
    "within_difference": Column(
        float, "the same difference within cells that have both kinds of runs (mean over cells)"
    ),
    "n_without_code": Column(int, "runs without any code"),
    "n_knowledge": Column(int, "fired codes E1; empty where rules judge, which cannot tell"),
    "n_engineering": Column(int, "fired codes E2 to E5"),
    "ratio": Column(float, "n_engineering / n_knowledge; empty without E1"),
    "n_two_or_more": Column(int, "runs with at least two codes"),
    "n_recovered": Column(int, "of these, runs with a complete final submission"),
    "treatment": Column(str, "name of the treatment: the variant is agent+treatment"),
    "quantity": Column(str, "overall, task, s1 to s5 (scores); tokens, cost_usd, minutes (per run)"),
    "mean_base": Column(float, "mean of the base on the compared cells"),
    "change": Column(float, "mean of the variant minus mean of the base; all runs count, used or not"),
    "n_traced": Column(int, "runs of the variant with skills or MCP servers whose use of them is known"),
    "n_used": Column(int, "of these, runs that opened a file of them or called a tool"),
    "change_used": Column(float, "the same of these runs alone: not random, so without an interval"),
    "file": Column(str, "path in the folder of skills; of MCP servers the called tool, mcp__<server>__<tool>"),
    "call": Column(int, "first code call that opened it; of a program's own tool the last one by then"),
    "fault": Column(str, "what went wrong on purpose; empty: the agent's runs without a fault"),
    "met": Column(bool, "the run met the fault, by evidence; empty: nothing can tell"),
    "evidence": Column(str, "what says so, or why it is not known"),
    "fault_cases": Column(str, "cases that the fault changed, separated by blanks"),
    "said": Column(str, "first sentence of the agent that names what went wrong; empty: there is none"),
    "said_in": Column(str, "where it stands: plan, turn or summary"),
    "change_unaffected": Column(
        float, "task score on the cases that the fault left alone, minus the mean of the runs without a fault"
    ),
    "recovered": Column(bool, "submitted, and change_unaffected is at least -0.05; empty: no run without a fault"),
    "silent": Column(bool, "silently wrong: met, wrong outputs, and nothing said; empty: not known whether it was met"),
    "n_met": Column(int, "runs that met the fault; the next counts are of these"),
    "n_unknown": Column(int, "runs of which nothing can tell whether they met it"),
    "n_said": Column(int, "runs that named what went wrong"),
    "n_fault_recovered": Column(int, "runs that recovered"),
    "n_silent": Column(int, "runs that were silently wrong"),
    "repeat_sd": Column(float, "standard deviation of the overall score between repeats (mean over cells)"),
    "all_medals": Column(float, "share of cells in which every repeat won a medal (pass^k of all repeats)"),
    "any_medal": Column(float, "share of cells in which some repeat won a medal (pass@k of all repeats)"),
    "n_confident": Column(int, "runs whose summary states how sure the agent is"),
    "confidence_gap": Column(float, "mean distance of that from the task score; empty without such a run"),
    "safe_share": Column(
        float, "share of runs with no finding of the audit: no warning, no opened decoy, no refused request"
    ),
    "recovery_rate": Column(float, "n_recovered / n_two_or_more"),
}
"""Column → what it holds; a name means the same in every table."""
