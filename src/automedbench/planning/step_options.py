"""Options of a step's command from the campaign's configuration."""

from __future__ import annotations

import shlex
from typing import Any

from automedbench.base.cards import TaskCard
from automedbench.campaign.config import BudgetConfig, CampaignConfig, FetchConfig, LeaderboardConfig

LIMIT_OPTIONS = {
    "time_limit_s": "time-limit",
    "max_turns": "max-turns",
    "exec_timeout_s": "exec-timeout",
    "max_total_tokens": "max-tokens",
    "max_cost_usd": "max-cost",
    "disk_gb": "disk-gb",
    "mem_gb": "mem-gb",
    "max_processes": "max-processes",
}
"""Limit → option of scripts/run_agent.py."""


def options_of(values: dict[str, Any]) -> str:
    """`` --name value`` for a shell command that Snakemake formats; flags for booleans, nothing for None."""
    words = []
    for name, value in values.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            words.append(f"--{name} {shlex.quote(str(value))}".replace("{", "{{").replace("}", "}}"))
    return "".join(f" {word}" for word in words)


def run_options(settings: CampaignConfig, image: str | None, scorer_image: str | None) -> str:
    """Options of scripts/run_agent.py that are the same for every run of a campaign; images None without containers."""
    sandbox = settings.sandbox
    plain = {
        "agents": settings.agents_file,
        "public": settings.data.public,
        "results": settings.results,
        "sandbox": sandbox.backend,
        "image": image,
        "scorer-image": scorer_image,
        "network": sandbox.network,
        "gpu": sandbox.gpu,
        "decoy": sandbox.decoy,
        "max-warnings": sandbox.max_warnings,
    }
    limits = {LIMIT_OPTIONS[name]: "none" if value is None else value for name, value in settings.limits.items()}
    proxied = _egress_options(settings) if sandbox.network == "proxied" else ""
    return options_of(plain) + options_of(limits) + _budget_options(settings.budget) + proxied


def fetch_options(fetch: FetchConfig) -> str:
    """Mirrors, and how downloads are made."""
    mirrors = "".join(options_of({"mirror": f"{host}={url}"}) for host, url in fetch.mirrors.items())
    return mirrors + (" --offline" if fetch.offline else "") + options_of({"workers": fetch.workers})


def _egress_options(settings: CampaignConfig) -> str:
    """What differs from the defaults, and the cards and raw data that are refused."""
    egress = settings.sandbox.egress
    changed = egress.model_dump(exclude_defaults=True)
    lists = {"cards": settings.cards, "egress-allow": changed.get("allow"), "egress-deny": changed.get("deny")}
    words = [
        f" --{name} {' '.join(map(shlex.quote, values))}" if values else f" --{name}"
        for name, values in lists.items()
        if values is not None
    ]
    hub = {"hub": egress.hub or "none"} if "hub" in changed else {}
    return "".join(words) + options_of({"raw": settings.data.raw, **hub})


def _budget_options(budget: BudgetConfig) -> str:
    names = {"max_cost_usd": "budget"}
    changed = budget.model_dump(exclude_defaults=True)
    return options_of({names.get(name, name.replace("_", "-")): value for name, value in changed.items()})


def judge_options(settings: CampaignConfig, rubrics: str) -> str:
    """Rubrics and, for a panel, its members and the cache of their answers, which lies outside of every run."""
    judge = settings.judge
    if judge.kind == "heuristic":
        return options_of({"rubrics": rubrics})
    panel = f" --panel {' '.join(map(shlex.quote, judge.panel))}"
    cache = f"{settings.results}/judge_cache"
    return panel + options_of(
        {"rubrics": rubrics, "judges": settings.judges_file, "repeats": judge.repeats, "cache": cache}
    )


def answer_judge_options(settings: CampaignConfig) -> str:
    """Data, endpoint and cache of the answer judge; nothing without one."""
    judge = settings.answer_judge
    if judge is None:
        return ""
    options = {
        "private": settings.data.private,
        "model": judge.model,
        "base-url": judge.base_url,
        "api-key-env": judge.api_key_env,
        "cache": f"{settings.results}/answer_judge_cache",
    }
    flags = {"temperature": judge.send_temperature, "json-mode": judge.json_mode}
    return options_of(options) + "".join(f" --no-{name}" for name, wanted in flags.items() if not wanted)


def report_options(settings: CampaignConfig, rubrics: str) -> str:
    """What the leaderboard is built from and how."""
    shown = settings.leaderboard
    return f" --cards {' '.join(map(shlex.quote, settings.cards))}" + options_of(
        {
            "results": settings.results,
            "rubrics": rubrics,
            "pooling": settings.pooling,
            "confidence": shown.confidence,
            "resamples": shown.resamples,
            "out": f"{settings.results}/leaderboard",
        }
    )


def cases_shown(shown: LeaderboardConfig, card: TaskCard) -> int:
    """Cases of a run that are shown with their answers; none where access to the data set forbids it."""
    allowed = shown.case_views == "all" or (shown.case_views == "public" and card.dataset.access == "public")
    return shown.cases_shown if allowed else 0
