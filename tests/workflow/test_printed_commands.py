"""Commands of README and docs run as printed, in one copy of the repository with a finished campaign.

The reader's models are baselines here, on the demo's excerpt of one data set and in the local sandbox: then nothing
needs a key, a network or a container. What still cannot run is replaced, and SUBSTITUTIONS says by what and why; every
row of that table is used.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml
from campaigns import fresh_copy
from conftest import ROOT, Project

PAGES = ["README.md", "containers/README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
ELSEWHERE = {
    "docs/tasks.md": "test_adding_a_task.py follows its commands, which build on each other",
    "docs/tutorial.md": "test_tutorial.py follows it",
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NO_COMMANDS = {"json", "python", "text", "yaml"}
COMMAND = re.compile(r"^(automedbench|git|make|pytest|python|snakemake) ", re.MULTILINE)

# Command as printed (without its comment) → what runs in its place, and why.
SUBSTITUTIONS = {
    r"make (demo|test)": (r"make -n \1", "takes minutes; test_demo.py makes the demo"),
    r"make setup && (.+)": (r"make -n setup && \1", "installs packages; the fixture `stranger` does it"),
    r"git clone <this repository> && .+": ("true", "the address is the reader's"),
    r"\$EDITOR (\S+)": (r"test -f \1", "an editor waits for a person"),
    r"(snakemake --profile slurm(?!.* -n).*)": (r"\1 -n", "submits jobs; test_slurm.py does"),
    r"snakemake --profile profiles/site\S*(?: -n)?(.*)": (
        r"snakemake --profile profiles/local -n\1",
        "`automedbench site` writes it for the reader's cluster",
    ),
    r"automedbench site(.*)": (
        "mkdir -p profiles/site && cp profiles/slurm/config.yaml profiles/site",
        "asks the reader's cluster, test_first_slurm.py has one; here the profile that it starts from",
    ),
    r"automedbench first-run(.*)": (
        r"automedbench first-run\1 --only clock",
        "test_first_run.py tries servers and jobs",
    ),
    r"(automedbench compare my-model) my-model\+nnunet": (r"\1 other-model", "test_treatments.py compares variants"),
    r"automedbench judge-eval --panel .+": ("automedbench judge-eval --help", "asks a model for judgements"),
    r"python tools/check_sources.py(.*)": (r"python tools/check_sources.py\1 --help", "asks hosts of data"),
    r"(snakemake .*--configfile demo/rehearsal\.yaml)": (r"\1 -n", "runs all 48 tasks"),
    r"pip install .+": ("pip --version", "installs packages"),
    r"litellm .+": ("true", "a gateway that is installed elsewhere, and lasts as long as its user wants it"),
    r"sbatch (?:--\S+ )*(\S+) .+": (r"bash -n \1", "submits a job; test_slurm.py does"),
    r"automedbench agents (build|check) .+": ("automedbench agents list", "takes containers; test_agent_layer.py does"),
    r"automedbench replay .+ --sandbox apptainer": ("automedbench replay --help", "takes the image of the run"),
    r"automedbench pack --make-key .+": (
        "automedbench pack --help",
        "a key is never written over; the fixture has one",
    ),
    r"pytest (\S+)": (r"test -e \1", "takes minutes, and containers"),
    r"(?:AMB_IMAGES=images )?python (\S*(?:build_image|security)\S*) .+": (r"python \1 --help", "takes containers"),
}
# Commands that report a lack, or a loss, by their exit code.
CODES = {"automedbench doctor": (0, 1), "automedbench doctor --profile profiles/site": (0, 1)}


@dataclass(frozen=True)
class Printed:
    """A command as it stands on a page, without its comment."""

    page: str
    line: int
    text: str

    @property
    def replacement(self) -> str:
        """What is run: the text itself, or what its row says."""
        for pattern, (instead, _) in SUBSTITUTIONS.items():
            if re.fullmatch(pattern, self.text):
                return re.sub(pattern, instead, self.text)
        return self.text


def printed(page: str) -> Iterator[Printed]:
    """Commands of all shell blocks; lines that end with a backslash go on."""
    text = (ROOT / page).read_text("utf-8")
    for block in FENCE.finditer(text):
        if block[1] not in ("sh", "bash"):
            continue
        first = text.count("\n", 0, block.start(2)) + 1
        lines = re.sub(r"\\\n\s*", lambda found: " " * len(found[0]), block[2])
        for match in re.finditer(r"^.+$", lines, re.MULTILINE):
            line = first + block[2].count("\n", 0, match.start())
            yield Printed(page, line, re.sub(r"\s{2,}", " ", re.sub(r"\s+#\s.*$", "", match[0])).strip())


Results = dict[str, subprocess.CompletedProcess[str]]
ALL = [command for page in PAGES if page not in ELSEWHERE for command in printed(page)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy whose reader has done what README says: two agents, their campaign finished by a plain `snakemake`."""
    project = fresh_copy(tmp_path_factory.mktemp("reader") / "automedbench")
    baselines = {
        name: {"provider": "baseline", "baseline": kind, "trusted": True}
        for name, kind in (("my-model", "constant"), ("other-model", "classical"))
    }
    (project.path / "config/agents.yaml").write_text(yaml.safe_dump({"agents": baselines}))
    campaign = project.path / "config/config.yaml"
    settings = yaml.safe_load(campaign.read_text()) | {
        "matrix": {"agents": list(baselines), "tasks": ["bccd-det-task"], "tiers": ["lite"], "repeats": 1},
        "data": {name: f"data/{name}" for name in ("raw", "public", "private", "manifests")},
        "datasets": {"bccd": {"path": "demo/data/bccd", "excerpt": True}},
    }
    settings["sandbox"] |= {"backend": "local", "network": "open"}
    campaign.write_text(yaml.safe_dump(settings))
    messages = [{"role": "user", "content": "Begin."}, {"role": "assistant", "content": "Nothing to do."}]
    (project.path / "conversation.json").write_text(json.dumps(messages))
    (project.path / "labels.yaml").write_text("lab: alpha\n")
    for command in (["snakemake", "--quiet", "all"], ["automedbench", "pack", "--make-key", "lab.pem"]):
        done = project.run(*command, timeout=300)
        assert done.returncode == 0, done.stdout[-3000:]
    return project


@pytest.fixture(scope="module")
def results() -> Results:
    """What has run already: a command that is printed twice runs once."""
    return {}


def test_every_block_has_a_language_and_commands_stand_in_shell_blocks() -> None:
    """A command in a block of another kind would be run by no test."""
    for page in PAGES:
        text = (ROOT / page).read_text("utf-8")
        blocks = FENCE.findall(text)
        assert text.count("```") == 2 * len(blocks), page
        assert {kind for kind, _ in blocks} <= {"sh", "bash", *NO_COMMANDS}, page
        hidden = [body for kind, body in blocks if kind == "text" and COMMAND.search(body)]
        assert hidden == [], page


def test_every_substitution_is_used() -> None:
    used = {pattern for pattern in SUBSTITUTIONS for command in ALL if re.fullmatch(pattern, command.text)}
    assert len(ALL) > 40  # the control: commands are found
    assert set(SUBSTITUTIONS) - used == set()


@pytest.mark.parametrize("command", ALL, ids=lambda command: f"{command.page}:{command.line}")
def test_runs_as_printed(command: Printed, reader: Project, results: Results) -> None:
    if command.replacement not in results:
        results[command.replacement] = reader.run("bash", "-euo", "pipefail", "-c", command.replacement, timeout=120)
    done = results[command.replacement]
    assert done.returncode in CODES.get(command.text, (0,)), f"{command.replacement}\n{done.stdout[-3000:]}"
