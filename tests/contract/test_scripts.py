"""Rules and scripts: rule, script, step and log have one name, and a command is a line that a person can type."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))
RULE_FILES = sorted((ROOT / "rules").glob("*.smk"))
NOT_A_STEP = {"all", "prepare", "all_tasks", "runs", "leaderboard", "partial"}
"""Targets: they name files, or (partial) call the script of another rule with one option more."""
SAID = {"rescore"}
"""Steps that print a table and have no output."""
RUN = "--run {params.run:q}"
"""What a step of a run works on; such a step finds its log itself (test_dry_run compares)."""


@dataclass(frozen=True)
class Rule:
    """One rule as it stands in its file; ``base``: the rule that it takes its command from."""

    name: str
    base: str
    text: str

    def section(self, name: str) -> str:
        """The text of ``name:`` up to the next directive."""
        found = re.search(rf"^    {name}:\n((?:        .*\n|\n)*)", self.text, re.MULTILINE)
        return found[1] if found else ""


def rules_in(path: Path) -> list[Rule]:
    pieces = re.split(r"^(?:use )?rule (\w+)(?: as (\w+) with)?:\n", path.read_text(), flags=re.MULTILINE)[1:]
    return [
        Rule(other or name, name if other else "", text)
        for name, other, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    ]


RULES = [rule for path in [ROOT / "Snakefile", *RULE_FILES] for rule in rules_in(path)]
STEPS = [rule for rule in RULES if rule.name not in NOT_A_STEP and not rule.base]
AGAIN = [rule for rule in RULES if rule.base]


def test_rule_script_and_step_have_one_name() -> None:
    """The ten rules of the workflow, plan, preflight, cache, answer judge and what is done again; each a function."""
    names = {rule.name for rule in STEPS}
    assert {path.stem for path in SCRIPTS} == names
    assert len(names) == 15
    for name in names:
        assert callable(getattr(importlib.import_module(f"automedbench.steps.{name}"), name))


def test_what_is_done_again_takes_the_same_commands() -> None:
    bases = {"score_metrics", "score_run", "score_judge", "rescore"}
    assert {rule.base for rule in AGAIN} == bases
    assert all(not rule.section("shell") for rule in AGAIN)


@pytest.mark.parametrize("rule", STEPS, ids=lambda rule: rule.name)
def test_rule_is_thin_wiring(rule: Rule) -> None:
    """Half a screen: docstring, named inputs and outputs, log, environment, one plain call of its own script."""
    assert re.match(r'    """[A-Z].*', rule.text), "no docstring"
    assert len([line for line in rule.text.splitlines() if line.strip()]) <= 40
    for section in ("input", "output"):
        for line in rule.section(section).splitlines():
            if re.match(r"        \S", line) and not line.strip().startswith((")", "]", "#")):
                assert re.match(r"        \w+=", line), f"{section} without a name: {line}"
    assert bool(rule.section("output")) != (rule.name in SAID)
    assert rule.section("conda").strip() == '"../envs/host.yaml"'
    shell = rule.section("shell")
    assert re.search(rf'"python scripts/{rule.name}\.py --campaign {{params.campaign:q}}', shell), shell
    log = "2>&1 | tee {log:q}" if rule.name in SAID else f"{RUN} --log" if RUN in shell else "> {log:q} 2>&1"
    assert shell.rstrip().endswith(f'{log}"')
    assert "+ " not in shell
    assert not any(f"    {word}:" in rule.text for word in ("run", "script", "container"))


@pytest.mark.parametrize("rule", [*STEPS, *AGAIN], ids=lambda rule: rule.name)
def test_log_has_the_name_of_the_rule(rule: Rule) -> None:
    assert re.search(rf'"logs/{rule.name}[./]', rule.section("log"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_paths_are_quoted(rule: Rule) -> None:
    """Every placeholder of a path is quoted by Snakemake; the others hold words without blanks, or quoted options."""
    plain = {"threads", "params.what", "wildcards.image", "params.configuration"}
    placeholders = re.findall(r"(?<!\{)\{([\w.]+)(:q)?\}", rule.section("shell"))
    assert {name for name, quoted in placeholders if not quoted} <= plain


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_rule_files_say_their_contract(path: Path) -> None:
    """What comes in, what goes out, what they fill."""
    head = path.read_text().split('"""')[1]
    assert "In:" in head
    assert "Out:" in head


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help(script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Few options, each explained; the first line says what the step makes, a missing one is named."""
    monkeypatch.setenv("COLUMNS", "200")
    text = called(script, ["--help"], 0, capsys, monkeypatch).out
    described = text.split("options:")[0].split("\n\n", 1)[1].strip()
    assert described[0].isupper()
    assert described.endswith(".")
    entries = re.split(r"\n  (?=-)", text.split("options:\n")[1])
    assert len(entries) <= 7
    assert [entry for entry in entries if not re.search(r"\s{2,}\S|\n\s+\S", entry.strip())] == []
    missing = called(script, [], 2, capsys, monkeypatch).err
    assert "the following arguments are required: --campaign" in missing


def called(
    script: Path, words: list[str], code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> pytest.CaptureResult[str]:
    monkeypatch.setattr(sys, "argv", [str(script), *words])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(script), run_name="__main__")
    assert end.value.code == code
    return capsys.readouterr()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_are_thin(script: Path) -> None:
    """They parse options and call the step of their name."""
    lines = [line for line in script.read_text().splitlines() if line.strip()]
    assert len(lines) <= 20
    assert "run_script(main)" in lines[-1]
