"""Options of a run's command: what the configuration says, and nothing where it says the default."""

from __future__ import annotations

import re
from typing import Any

import pytest

from automedbench.campaign.config import CampaignConfig
from automedbench.planning.run_command import LIMITS
from automedbench.planning.step_options import LIMIT_OPTIONS, options_of, run_options

BASE: dict[str, Any] = {
    "matrix": {"agents": ["a"], "tasks": ["t"]},
    "data": {"raw": "raw", "public": "public", "private": "private", "manifests": "manifests"},
}
HEAD = "--agents config/agents.yaml --public public --results results --sandbox apptainer"


def options(**changes: Any) -> str:
    """Options of a campaign with these changes, in an agent image and a scorer image."""
    return run_options(CampaignConfig.model_validate(BASE | changes), "a.sif", "s.sif").strip()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {}, "--network proxied --no-gpu --decoy --max-warnings 1 --cards config/tasks --raw raw", id="default"
        ),
        pytest.param(
            {"sandbox": {"network": "sealed", "gpu": True, "decoy": False}},
            "--network sealed --gpu --no-decoy --max-warnings 1",
            id="sealed: no word of the proxy",
        ),
        pytest.param(
            {"sandbox": {"egress": {"allow": [], "deny": ["x.org", "a b"], "hub": None}}},
            "--network proxied --no-gpu --decoy --max-warnings 1 --cards config/tasks --egress-allow"
            " --egress-deny x.org 'a b' --raw raw --hub none",
            id="own rules of the proxy",
        ),
        pytest.param(
            {
                "sandbox": {"network": "open"},
                "limits": {"mem_gb": None, "max_turns": 3},
                "budget": {"max_cost_usd": "12.50", "expected_turns": 5},
            },
            "--network open --no-gpu --decoy --max-warnings 1 --mem-gb none --max-turns 3 --budget 12.50"
            " --expected-turns 5",
            id="limits and budget",
        ),
    ],
)
def test_options(changes: dict[str, Any], expected: str) -> None:
    assert options(**changes) == f"{HEAD} --image a.sif --scorer-image s.sif {expected}"


def test_every_limit_has_an_option() -> None:
    """Both ends of the command name the limits alike."""
    assert {name: f"--{option}" for name, option in LIMIT_OPTIONS.items()} == {
        name: option for name, (option, _, _) in LIMITS.items()
    }


def test_values_are_quoted_for_shell_and_snakemake() -> None:
    """A brace would be a placeholder to Snakemake."""
    text = options_of({"config": "{a: 'b c'}", "none": None})
    assert text == " --config '{{a: '\"'\"'b c'\"'\"'}}'"
    assert not re.search(r"(?<!\{)\{(?!\{)", text)
