"""Rules and scripts: one pair per step, same name, named options, runnable by hand."""

from __future__ import annotations

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
AGAIN = {
    "rescore_metrics": "score_metrics",
    "rescore_run": "score_run",
    "rescore": "show_changes",
    "rejudge_stages": "score_judge",
    "rejudge_run": "score_run",
    "rejudge": "show_changes",
}
"""Rules that score finished runs beside them → whose script they call."""
SHOWS = {"rescore", "rejudge"}
"""Of these, targets that show a table: they have no output and print."""


@dataclass(frozen=True)
class Rule:
    """One rule as it stands in its file."""

    name: str
    file: str
    text: str

    def section(self, name: str) -> str:
        """The text below ``name:`` up to the next directive."""
        found = re.search(rf"^    {name}:\n((?:        .*\n|\n)*)", self.text, re.MULTILINE)
        return found[1] if found else ""


def rules_in(path: Path) -> list[Rule]:
    pieces = re.split(r"^rule (\w+):\n", path.read_text(), flags=re.MULTILINE)
    return [Rule(name, path.name, text) for name, text in zip(pieces[1::2], pieces[2::2], strict=True)]


RULES = [rule for path in [ROOT / "Snakefile", *RULE_FILES] for rule in rules_in(path)]
STEPS = [rule for rule in RULES if rule.name not in NOT_A_STEP]


def options_called(rule: Rule) -> set[str]:
    """Options that stand in the shell text of a rule itself."""
    return set(re.findall(r"(?<=\s)--[a-z-]+", rule.section("shell").replace('"', " ")))


def help_of(script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(script), run_name="__main__")
    assert end.value.code == 0
    return capsys.readouterr().out


def test_rules_are_found() -> None:
    """The ten rules of docs/specification.md, 3, the plan, the check of the scorer's resources and the answer judge."""
    assert {rule.name for rule in STEPS} == {
        "fetch_dataset",
        "stage_task",
        "build_image",
        "run_agent",
        "collect_submission",
        "audit_run",
        "judge_answers",
        "score_metrics",
        "score_judge",
        "score_run",
        "plan_campaign",
        "preflight",
        "build_leaderboard",
        *AGAIN,
    }


def test_one_script_per_rule() -> None:
    assert {path.stem for path in SCRIPTS} == {AGAIN.get(rule.name, rule.name) for rule in STEPS}


@pytest.mark.parametrize("rule", STEPS, ids=lambda rule: rule.name)
def test_rule_is_thin_wiring(rule: Rule) -> None:
    """Half a screen: docstring, named inputs and outputs, log, environment, one call of its own script."""
    assert re.match(r'    """[A-Z].*', rule.text), "no docstring"
    assert len([line for line in rule.text.splitlines() if line.strip()]) <= 40
    for section in ("input", "output"):
        for line in rule.section(section).splitlines():
            if re.match(r"        \S", line) and not line.strip().startswith((")", "]", "#")):
                assert re.match(r"        \w+=", line), f"{section} without a name: {line}"
    assert bool(rule.section("output")) != (rule.name in SHOWS)
    assert rule.section("log")
    assert rule.section("conda").strip() == '"../envs/host.yaml"'
    shell = rule.section("shell")
    assert shell.count("python scripts/") == 1
    assert re.search(rf'python scripts/{AGAIN.get(rule.name, rule.name)}\.py[ "]', shell)
    assert ("2>&1 | tee {log:q}" if rule.name in SHOWS else "> {log:q} 2>&1") in shell
    assert not any(f"    {word}:" in rule.text for word in ("run", "script", "container"))


@pytest.mark.parametrize("rule", STEPS, ids=lambda rule: rule.name)
def test_log_has_the_name_of_the_rule(rule: Rule) -> None:
    assert f"logs/{rule.name}" in rule.section("log") or f'CAMPAIGN.log("{rule.name}")' in rule.section("log")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_paths_are_quoted(rule: Rule) -> None:
    """Every placeholder of a path is quoted by Snakemake; the others hold names without blanks."""
    plain = {"wildcards.tier", "wildcards.repeat", "wildcards.task", "params.track", "run", "threads"}
    # Whole options, quoted where they are made.
    plain |= {"params.path", "params.excerpt", "params.verdicts", "params.decision", "params.views"}
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
    """Every option is explained or speaks for itself by its choices; the first line says what the step makes."""
    text = help_of(script, capsys, monkeypatch)
    described = text.split("options:")[0].split("\n\n", 1)[1].strip()
    assert described[0].isupper()
    assert described.endswith(".")
    entries = re.split(r"\n  (?=-)", text.split("options:\n")[1])
    bare = [entry.split()[0] for entry in entries if not re.search(r"(\s{2,}\S|\{|\n\s+\S)", entry.strip())]
    assert set(bare) <= {"--gpu,"}


@pytest.mark.parametrize("rule", STEPS, ids=lambda rule: rule.name)
def test_rules_use_options_that_exist(
    rule: Rule, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options that come from the configuration are parsed in the workflow tests, as they are printed."""
    text = help_of(ROOT / f"scripts/{AGAIN.get(rule.name, rule.name)}.py", capsys, monkeypatch)
    assert options_called(rule) <= set(re.findall(r"--[a-z-]+", text))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_usage_errors_are_short(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing option is named; exit code 2 as usual."""
    monkeypatch.setattr(sys, "argv", [str(script)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(script), run_name="__main__")
    assert end.value.code == 2
    assert "the following arguments are required: --" in capsys.readouterr().err


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_are_thin(script: Path) -> None:
    """They parse options and call one function of the package."""
    lines = [line for line in script.read_text().splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) <= 100
    assert "run_script(main)" in lines[-1]
