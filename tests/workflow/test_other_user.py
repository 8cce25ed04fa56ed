"""Another user of the machine, who reads all that may be read for a whole campaign: gets nothing, changes nothing."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from campaigns import TASK, only
from conftest import ROOT, Project, clean_environment, copy_tree, narrow_demo
from demo_scores import DEMO_SCORES
from unprivileged import USER

# Runs as the other user until its standard input ends: folders, files and command lines, over and over.
READER = """
import json, os, select, sys
place, secret = sys.argv[1], sys.argv[2].encode()
names, told, rounds = set(), set(), 0
while rounds < 1 or not select.select([0], [], [], 0.4)[0]:
    rounds += 1
    for folder, _, files in os.walk(place):
        for name in files:
            path = os.path.join(folder, name)
            try:
                with open(path, "rb") as stream:
                    data = stream.read()
            except OSError:
                continue
            names.add(os.path.relpath(path, place))
            if secret in data:
                told.add(path)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for file in ("cmdline", "environ"):
            try:
                with open(f"/proc/{pid}/{file}", "rb") as stream:
                    if int(pid) != os.getpid() and secret in stream.read():
                        told.add(f"/proc/{pid}/{file}")
            except OSError:
                continue
print(json.dumps({"names": sorted(names), "told": sorted(told), "rounds": rounds}))
"""
CLOSED = ("data/", "results/", "logs/", "tmp/")
"""What a campaign makes; all else in the folder is the public repository."""


@pytest.fixture
def project() -> Iterator[Project]:
    """A campaign on data that needs credentials, where every user may go; its folders lie open."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    place = Path(tempfile.mkdtemp(prefix="amb-other-"))
    place.chmod(0o755)
    copy_tree(place / "automedbench")
    narrow_demo(place / "automedbench")
    card = place / f"automedbench/config/tasks/detection/{TASK}.yaml"
    agents = place / "automedbench/demo/agents.yaml"
    card.write_text(card.read_text().replace("access: public", "access: credentialed"))
    agents.write_text(agents.read_text().replace("trusted: true}", "trusted: true, approved_for: [credentialed]}"))
    for name in ("data/demo/raw/bccd", "results", "logs", ".snakemake", "tmp"):
        (place / "automedbench" / name).mkdir(parents=True)
        (place / "automedbench" / name).chmod(0o777)
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    environment = clean_environment(place, path) | {
        "PYTHONPATH": str(place / "automedbench/src"),
        "TMPDIR": str(place / "automedbench/tmp"),
    }
    yield Project(place / "automedbench", environment, ("sh", "-c", 'umask 0; exec "$@"', "sh"))
    shutil.rmtree(place)


def campaign_beside_a_reader(project: Project, secret: str) -> dict[str, Any]:
    """Run the campaign; what the other user saw meanwhile."""
    account = pwd.getpwnam(USER)
    reader = subprocess.Popen(
        ["/usr/bin/python3", "-c", READER, str(project.path), secret],
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    done = project.snakemake(
        f"results/demo/runs/careful/{TASK}/lite/r1/score.json", *only("careful"), OPENAI_API_KEY=secret
    )
    seen, _ = reader.communicate("end\n", timeout=60)
    assert done.returncode == 0, done.stdout[-3000:]
    found: dict[str, Any] = json.loads(seen)
    return found


def test_reads_nothing_and_changes_nothing(project: Project) -> None:
    secret = f"canary{secrets.token_hex(12)}"
    seen = campaign_beside_a_reader(project, secret)
    assert seen["rounds"] > 3  # during the campaign, not only before
    assert "config/config.yaml" in seen["names"]  # the reader does read
    assert [name for name in seen["names"] if name.startswith(CLOSED)] == []
    run = project.path / f"results/demo/runs/careful/{TASK}/lite/r1"
    assert json.loads((run / "audit.json").read_text())["findings"] == []
    overall = json.loads((run / "score.json").read_text())["scores"]["overall"]
    assert overall * 100 == pytest.approx(DEMO_SCORES["careful"][0], abs=0.051)
    # Not by the door alone: what was made has modes of its own, with any umask.
    assert stat.S_IMODE((project.path / ".snakemake").stat().st_mode) == 0o700
    places = [place for name in CLOSED for place in (project.path / name).rglob("*") if not place.is_symlink()]
    given = {project.path / "data/demo", project.path / "data/demo/raw", project.path / "data/demo/raw/bccd"}
    made = [place for place in places if place not in given and place.name != "lock" and place.stat().st_mode & 0o077]
    assert len(places) > 60
    assert [str(place.relative_to(project.path)) for place in made] == []
    assert seen["told"] == []
