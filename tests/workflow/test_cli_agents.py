"""Real command-line agents, from npm and PyPI, sealed in Apptainer: the same work earns the same score."""

from __future__ import annotations

import pytest
from conftest import Project

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(1500)]

QUICK = ("codex",)
"""From npm, and speaks Responses; a layer from PyPI is built by test_agent_layer.py."""
REST = ("claude-code", "gemini-cli", "inspect", "mini-swe-agent", "opencode")


def play(stranger: Project, programs: tuple[str, ...], *options: str) -> None:
    """Build the layers and let all play the demo's careful agent beside our own loop."""
    for program in programs:
        built = stranger.run("automedbench", "agents", "build", program, "--image", "images/light.sif")
        assert built.returncode == 0, built.stdout[-3000:]
    played = stranger.run("python", "benchmarks/cli_agents.py", *programs, *options, timeout=1400)
    print(played.stdout)
    assert played.returncode == 0, played.stdout[-5000:]


def test_programs_earn_what_our_own_loop_earns(container_stranger: Project) -> None:
    """Stages and task score, cost to the digit, no key anywhere (see benchmarks/cli_agents.py)."""
    play(container_stranger, QUICK, "--tracks", "detection")


@pytest.mark.long
def test_all_programs_on_all_tracks(container_stranger: Project) -> None:
    play(container_stranger, (*QUICK, *REST))
