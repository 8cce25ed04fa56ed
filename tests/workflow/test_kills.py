"""``kill -9`` at random moments over head, driver and scorer: one restart, and nothing is lost or paid twice.

``AMB_KILLS`` sets how many (4 by default; docs/agents-measured.md has the figures of 200), ``AMB_SEED`` when and
whom. There is at least one of each kind.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
from pathlib import Path

import pytest
from conftest import Project
from killing import (
    KEY_NAME,
    WEIGHTS,
    Storm,
    check_attempts,
    check_requests,
    finish,
    kill_at_random,
    leaderboard,
    scripts_of,
    write_campaign,
)
from killing import Requests as Recorded

from automedbench_rehearsal.model_server.server import ScriptedServer

N_KILLS = int(os.environ.get("AMB_KILLS", "4"))
SEED = int(os.environ.get("AMB_SEED", "1"))
N_AGENTS = 3 if N_KILLS < 50 else 20

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(1800 + 120 * N_KILLS)]


def test_killed_at_random(container_stranger: Project, tmp_path: Path) -> None:
    """As many campaigns as it takes, each compared with the one that nobody disturbed."""
    plain = container_stranger
    project = Project(plain.path, {**plain.environment, KEY_NAME: f"sk-{secrets.token_hex(16)}"}, plain.prefix)
    chance, total, repeated = random.Random(SEED), Storm(), 0
    scripts = scripts_of(project, N_AGENTS)
    for results in project.path.glob("kills-*"):
        shutil.rmtree(results)
    recorded = Recorded()
    with ScriptedServer(scripts, keep=False, record=recorded, usage=(300, 20), demand=True) as server:
        options = write_campaign(project, server.url, list(scripts))
        finish(project, options, "kills-0")
        undisturbed = recorded.take()
        expected = leaderboard(project, "kills-0", tmp_path)
        check_requests(undisturbed, undisturbed, Storm().drivers())
        while len(total.kills) < N_KILLS:
            results = f"kills-{total.restarts + 1}"
            storm = kill_at_random(project, options, results, chance, N_KILLS - len(total.kills), done=total.kinds())
            finish(project, options, results)
            total.kills += storm.kills
            total.restarts += storm.restarts
            check_attempts(project, results, list(scripts))
            repeated += check_requests(recorded.take(), undisturbed, storm.drivers())
            assert leaderboard(project, results, tmp_path) == expected
            shutil.rmtree(project.path / results)
            shutil.rmtree(tmp_path / results)
    assert total.kinds() == set(WEIGHTS)
    counts = ", ".join(f"{total.count(kind)} {kind}" for kind in ("head", "driver", "scorer"))
    print(f"\n{len(total.kills)} kills ({counts}), seed {SEED}: {repeated} requests repeated, no run lost")
