"""The logger plugin: what of Snakemake's messages a person sees, on a terminal and elsewhere."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.tests import MockOutputSettings, TestLogHandlerBase

from snakemake_logger_plugin_automedbench import LogHandler
from snakemake_logger_plugin_automedbench.display import Lines, LiveLine, make_display
from snakemake_logger_plugin_automedbench.dry_run import summary
from snakemake_logger_plugin_automedbench.outages import describe_changes
from snakemake_logger_plugin_automedbench.steps import Steps, describe_failure, last_lines, step_name


class TestInterface(TestLogHandlerBase):
    """The interface's own tests."""

    __test__ = True

    def get_log_handler_cls(self) -> type[LogHandler]:
        return LogHandler

    def get_log_handler_settings(self) -> None:
        return None


def settings(**changes: Any) -> Any:
    """Settings of the demo's profile, changed."""
    quiet: set[Enum] = {Quietness.HOST, Quietness.REASON}
    common = MockOutputSettings()
    for name, value in ({"quiet": quiet} | changes).items():
        setattr(common, name, value)
    return common


def record(event: LogEvent | None, message: str = "None", level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    """A record as it comes out of the queue: formatted, with the event's fields as attributes."""
    made = logging.LogRecord("snakemake", level, "file", 1, message, None, None)
    made.__dict__.update(extra | ({"event": event} if event else {}))
    return made


def planned(total: int) -> logging.LogRecord:
    return record(LogEvent.RUN_INFO, "Job stats: ...", stats={"score_run": total - 1, "all": 1, "total": total})


def begun(job: int, rule: str = "score_run", **wildcards: str) -> logging.LogRecord:
    return record(LogEvent.JOB_INFO, jobid=job, rule_name=rule, wildcards=wildcards)


def ended(job: int, done: int, total: int) -> list[logging.LogRecord]:
    """What follows when a step is done."""
    return [record(LogEvent.JOB_FINISHED, job_id=job), record(LogEvent.PROGRESS, done=done, total=total)]


def failed(job: int, log: str, command: str | None = "python scripts/score_run.py") -> logging.LogRecord:
    return record(
        LogEvent.JOB_ERROR,
        "Error in rule score_run, jobid: 1",
        logging.ERROR,
        jobid=job,
        rule_name="score_run",
        log=[log],
        shellcmd=command,
    )


def said(capsys: pytest.CaptureFixture[str], records: list[logging.LogRecord], **changes: Any) -> list[str]:
    """Lines on stderr after these records, without times."""
    handler = LogHandler(settings(**changes), None)
    for each in records:
        handler.emit(each)
    handler.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.replace("0:00", "TIME").splitlines()


# --- nothing, little, much ------------------------------------------------------------------------------------


def test_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """No progress of nothing."""
    chatter = [record(None, "Building DAG of jobs..."), record(None, "Config file config/config.yaml is extended by")]
    assert said(capsys, [*chatter, record(None, "Nothing to be done (all there).")]) == [
        "Nothing to be done (all there)."
    ]
    assert said(capsys, []) == []


def test_a_line_for_every_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    """30 steps: nine lines (10 % to 90 %) and how it ended."""
    records = [planned(30), begun(100, "run_agent", agent="hasty", task="bccd-det-task")]
    for job in range(30):
        records += [begun(job), *ended(job, job + 1, 30)]
    lines = said(capsys, records)
    assert [line.split(" %")[0].strip() for line in lines[:-1]] == [f"{percent}" for percent in range(10, 100, 10)]
    assert lines[0] == " 10 % · 3 of 30 steps · TIME · run_agent hasty/bccd-det-task"
    assert lines[-1] == "30 of 30 steps done in TIME"


def test_few_steps(capsys: pytest.CaptureFixture[str]) -> None:
    """A step that is more than a tenth gives one line, not one for each tenth that it passes."""
    lines = said(capsys, [planned(3), *ended(1, 1, 3), *ended(2, 2, 3), *ended(3, 3, 3)])
    assert lines == [" 33 % · 1 of 3 steps · TIME", " 66 % · 2 of 3 steps · TIME", "3 of 3 steps done in TIME"]


SHOWN: list[tuple[str, logging.LogRecord, bool]] = [
    ("warning", record(None, "Something is odd.", logging.WARNING), True),
    ("error", record(LogEvent.ERROR, "MissingInputException in rule x", logging.ERROR), True),
    ("error of the shell", record(LogEvent.ERROR, "RuleException:\nCalledProcessError in file", logging.ERROR), False),
    ("group error", record(LogEvent.GROUP_ERROR, "Error in group 1", logging.ERROR), True),
    ("unknown message", record(None, "The disk is getting full."), True),
    ("unlocked", record(None, "Unlocked working directory."), True),
    ("interrupted", record(None, "Terminating processes on user request, this might take some time."), True),
    ("chatter", record(None, "Select jobs to execute..."), False),
    ("command", record(LogEvent.SHELLCMD, "Shell command: ls", shellcmd="ls"), False),
    ("resources", record(LogEvent.RESOURCES_INFO, "Provided cores: 2", cores=2), False),
    ("start", record(LogEvent.WORKFLOW_STARTED, "Workflow has started!"), False),
    ("jobs started", record(LogEvent.JOB_STARTED, "Execute 1 jobs...", jobs=[1]), False),
]


@pytest.mark.parametrize(("given", "shown"), [row[1:] for row in SHOWN], ids=[row[0] for row in SHOWN])
def test_what_is_shown(capsys: pytest.CaptureFixture[str], given: logging.LogRecord, shown: bool) -> None:
    assert said(capsys, [given]) == (given.getMessage().splitlines() if shown else [])


# --- failures -------------------------------------------------------------------------------------------------


def test_failed_step(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its name, the end of its log, where that is, and its command on one line; the end counts it."""
    log = tmp_path / "step.log"
    log.write_text("MissingDataError: nothing there.\n\nHow to get it: ask.\n")
    records = [planned(3), begun(1, agent="hasty", task="t"), failed(1, str(log), "python  a.py\n > log"), begun(2)]
    assert said(capsys, [*records, *ended(2, 1, 3)]) == [
        "Failed: score_run hasty/t",
        "  MissingDataError: nothing there.",
        "  How to get it: ask.",
        f"  log: {log}",
        "  to repeat this step alone: python a.py > log",
        " 33 % · 1 of 3 steps · TIME · 1 failed",
        "1 of 3 steps done, 1 failed (score_run hasty/t) in TIME",
    ]


def test_logs_are_shown_if_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "log").write_text("why")
    lines = said(capsys, [failed(1, str(tmp_path / "log"), None)], show_failed_logs=False)
    assert lines == ["Failed: score_run", f"  log: {tmp_path / 'log'}"]


def test_many_failures_end_in_one_line() -> None:
    steps = Steps(total=9)
    for job in range(5):
        steps.fail(job, f"rule{job}")
    stream = io.StringIO()
    Lines(stream).stop(steps)
    assert stream.getvalue() == "0 of 9 steps done, 5 failed (rule0, rule1, rule2 …) in 0:00\n"


LOGS: list[tuple[str, bytes | None, list[str]]] = [
    ("absent", None, ["(the step did not begin)"]),
    ("empty", b"", ["(the log is empty)"]),
    ("blank lines", b"\n \n", ["(the log is empty)"]),
    ("two lines", b"a\nb", ["a", "b"]),
    ("not UTF-8", b"\xff\xfe", ["\ufffd\ufffd"]),
    ("escape sequences", b"\x1b[2Jgone\x07", [" [2Jgone "]),
    ("many lines", b"".join(b"%d\n" % i for i in range(100)), ["...", *map(str, range(80, 100))]),
    ("one endless line", b"x" * 100_000, ["...", "x" * 64_000]),
]


@pytest.mark.parametrize(("content", "expected"), [row[1:] for row in LOGS], ids=[row[0] for row in LOGS])
def test_last_lines(tmp_path: Path, content: bytes | None, expected: list[str]) -> None:
    if content is not None:
        (tmp_path / "log").write_bytes(content)
    assert last_lines(str(tmp_path / "log")) == expected


def test_log_that_is_a_folder(tmp_path: Path) -> None:
    assert last_lines(str(tmp_path)) == ["(no log: Is a directory)"]


def test_end_of_a_job_of_a_cluster() -> None:
    text = describe_failure(
        "run_agent a", None, [], False, message="Slurm job 7 ended as CANCELLED.\nThe next call goes on."
    )
    assert text.splitlines() == ["Failed: run_agent a", "  Slurm job 7 ended as CANCELLED.", "  The next call goes on."]


def test_what_ctrl_c_ended_is_no_failure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Snakemake reports steps that the same signal ended as failed, with their logs."""
    said_first = record(None, "Terminating processes on user request, this might take some time.")
    lost = record(LogEvent.ERROR, "WorkflowError:\nAt least one job did not complete successfully.")
    records = [planned(3), begun(1), said_first, failed(1, str(tmp_path / "log")), lost]
    assert said(capsys, records) == [said_first.getMessage(), "0 of 3 steps done, interrupted in TIME"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Traceback (most recent call last):\n  File \"x\"\nFileNotFoundError: [Errno 2] No such file: 'n.yaml'\n", 2),
        ('PermissionError in file "rules/common.smk", line 59:\n[Errno 1] Not permitted: \'/sys/x\'\n  File "y"', 1),
    ],
    ids=["missing configfile", "read-only results"],
)
def test_what_the_system_refuses_is_one_line(capsys: pytest.CaptureFixture[str], text: str, kept: int) -> None:
    """As Snakemake 9 formats both, seen with ``--configfile n.yaml`` and ``--config results=/sys/x``."""
    error = record(
        LogEvent.ERROR, text, logging.ERROR, exception="FileNotFoundError" if kept == 2 else "PermissionError"
    )
    assert said(capsys, [error]) == [text.splitlines()[kept]]


def test_a_users_mistake_has_no_frames(capsys: pytest.CaptureFixture[str]) -> None:
    """As Snakemake 9 formats a wrong campaign and a misspelt target."""
    text = (
        'ConfigError in file "rules/common.smk", line 43:\n--config: x: unknown key\nand y\n  File "z", line 43, in f'
    )
    wrong = record(LogEvent.ERROR, text, logging.ERROR, exception="ConfigError")
    assert said(capsys, [wrong]) == ["ConfigError: --config: x: unknown key", "and y"]
    hint = "if you use input functions make sure that they don't raise unexpected exceptions"
    text = f"MissingRuleException:\nNo rule to produce al ({hint})."
    absent = record(LogEvent.ERROR, text, logging.ERROR, exception="MissingRuleException")
    first, second = said(capsys, [absent])
    assert first == "MissingRuleException: No rule to produce al" and "--list-target-rules" in second


def test_step_without_anything() -> None:
    assert describe_failure(step_name("all", None), None, [], []) == "Failed: all"


# --- how much is asked for ------------------------------------------------------------------------------------


def test_quiet(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Plain ``--quiet`` hides progress, not failures; ``--quiet all`` hides everything, as without the plugin."""
    records = [planned(2), failed(1, str(tmp_path / "none")), *ended(2, 1, 2)]
    less = said(capsys, records, quiet={Quietness.PROGRESS, Quietness.RULES})
    assert less[0] == "Failed: score_run"
    assert not [line for line in less if "steps" in line]
    assert said(capsys, records, quiet={Quietness.ALL}) == []
    assert said(capsys, records, quiet={Quietness.ALL}, dryrun=True) == []
    assert said(capsys, records, quiet=None)[-1].startswith("1 of 2 steps done")


@pytest.mark.parametrize("options", [("dryrun", "printshellcmds"), ("verbose",), ("debug_dag",)], ids="-".join)
def test_details_on_demand(monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    """Snakemake's own handler and filter."""
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    asked = {**dict.fromkeys(("printshellcmds", *options), True), "stdout": True, "quiet": {Quietness.HOST}}
    handler = LogHandler(settings(**asked), None)
    handler.emit(record(None, "Building DAG of jobs..."))
    handler.emit(record(LogEvent.SHELLCMD, "Shell command: ls", shellcmd="ls"))
    handler.emit(record(LogEvent.WORKFLOW_STARTED, "Workflow has started!", quietness=Quietness.HOST))
    handler.close()
    assert stream.getvalue().splitlines() == ["Building DAG of jobs...", "Shell command: ls"]


def test_short_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Without -p nothing but what needs attention; the counts come with the forecast, when the plan is complete."""
    records = [planned(2), begun(1), record(None, "This was a dry-run (flag -n)."), record(None, "Nothing to be done")]
    assert said(capsys, records, dryrun=True, printshellcmds=False) == ["Nothing to be done"]
    assert summary({"fetch_dataset": 1, "run_agent": 12})[:3] == [
        "13 steps to do:",
        "  fetch_dataset      1",
        "  run_agent         12",
    ]


def test_a_signal_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Snakemake says it with every step that ends; the signal's own line is the campaign's (planning/heads.py)."""
    again = record(None, "Will exit after finishing currently running jobs (scheduler).")
    assert [line for line in said(capsys, [planned(2), again, again]) if "exit" in line] == []


def test_never_raises(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A record without what its event promises: Snakemake goes on, and so do the messages."""
    monkeypatch.setattr(logging, "raiseExceptions", False)
    lines = said(capsys, [record(LogEvent.RUN_INFO), record(LogEvent.JOB_INFO), *[record(None, "Still here.")]])
    assert lines == ["Still here."]


def test_closed_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """By Snakemake, and by Python when it ends."""
    handler = LogHandler(settings(), None)
    handler.emit(planned(1))
    handler.close()
    handler.close()
    handler.emit(record(None, "too late"))
    assert capsys.readouterr().err.count("\n") == 1


# --- a terminal -----------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "term", "kind"),
    [
        pytest.param(Terminal, "xterm", LiveLine, id="terminal"),
        pytest.param(Terminal, "dumb", Lines, id="dumb terminal"),
        pytest.param(io.StringIO, "xterm", Lines, id="file"),
    ],
)
def test_choice(monkeypatch: pytest.MonkeyPatch, stream: Callable[[], Any], term: str, kind: type) -> None:
    monkeypatch.setenv("TERM", term)
    assert type(make_display(stream(), nocolor=False, progress=True)) is kind


def test_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, percentage and what runs, cut to the width; messages above; in the end the cursor is back."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    line, steps = make_display(stream, nocolor=True, progress=True), Steps(total=180, done=45)
    steps.running[1] = "run_agent careful/" + "long" * 30
    line.update(steps)
    line.print("[bold]as it is[/bold] " + "x" * 100)
    drawn = stream.getvalue()
    assert " 45/180 steps  25 %" in drawn
    assert "run_agent careful/" in drawn
    assert "…" in drawn
    assert "[bold]as it is[/bold] " + "x" * 100 in drawn
    assert "\x1b[?25l" in drawn
    line.stop(steps)
    assert stream.getvalue().endswith("45 of 180 steps done in 0:00\n")
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")


def test_live_line_without_steps() -> None:
    """Nothing is drawn, the cursor is never taken."""
    stream = Terminal()
    line = LiveLine(Console(file=stream, force_terminal=True, width=80))
    line.update(Steps())
    line.stop(Steps())
    assert stream.getvalue() == ""


def test_what_runs_is_counted_where_it_is_much() -> None:
    steps = Steps(running={number: f"run_agent a/{number}" for number in range(3)}, failed=["collect a/9"])
    assert steps.now == "1 failed · run_agent a/0 · run_agent a/1 · run_agent a/2"
    steps.running |= {3: "run_agent a/3", 4: "score_run a/4"}
    assert steps.now == "1 failed · 4 × run_agent · 1 × score_run"


def test_outages_are_told_once_each() -> None:
    """One of an earlier call only when it is met again; the count of its attempts is no news."""
    told = set[str]()
    old, new, later = (f"api.lab is down since 03:04 UTC ({count} attempts failed)" for count in (6, 7, 8))
    said = [list(describe_changes(now, {old}, told)) for now in ([old], [new], [later], [], [])]
    assert said == [[], [f"Waiting: {new}."], [], ["api.lab answers again."], []]


def test_names() -> None:
    assert step_name("all", {}) == "all"
    assert step_name("run_agent", SimpleNamespace(values=lambda: ["a", 1])) == "run_agent a/1"  # type: ignore[arg-type]
