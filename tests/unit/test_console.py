"""How scripts end: message or traceback, exit code, Ctrl-C and SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

HEAD = """
import errno, os, signal, sys, time
from automedbench.base.console import run_script
from automedbench.base.errors import ConfigError, InfrastructureError, JudgeError, MissingDataError

def main(arguments):
    {body}

run_script(main)
print("after")
"""


def script(body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A script whose ``main`` has this body."""
    return subprocess.run(
        [sys.executable, "-c", HEAD.format(body=body), *arguments], capture_output=True, text=True, check=False
    )


def test_no_error_no_arguments() -> None:
    done = script("print(arguments)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\nafter\n", "")


def test_arguments_without_the_name_of_the_script() -> None:
    assert script("print(arguments)", "--a", "b c").stdout.startswith("['--a', 'b c']")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            "raise ConfigError(['a.yaml: x: wrong', 'b.yaml: y: wrong'])",
            "ConfigError: a.yaml: x: wrong\nb.yaml: y: wrong\n",
            id="config",
        ),
        pytest.param("raise InfrastructureError('no\\nway')", "InfrastructureError: no\nway\n", id="infrastructure"),
        pytest.param("raise MissingDataError('gone')", "MissingDataError: gone\n", id="missing"),
        pytest.param("raise JudgeError('no answer')", "JudgeError: no answer\n", id="judge"),
        pytest.param(
            "raise OSError(errno.ENOSPC, 'No space left on device', 'results/x')",
            "InfrastructureError: results/x: No space left on device.\n"
            "Free space or fix the permissions, then run the same command again.\n",
            id="disk full where nobody thought of it",
        ),
        pytest.param(
            "raise PermissionError(errno.EACCES, 'Permission denied')",
            "InfrastructureError: Permission denied.\n"
            "Free space or fix the permissions, then run the same command again.\n",
            id="permission",
        ),
    ],
)
def test_a_users_error_is_a_message(body: str, message: str) -> None:
    done = script(body)
    assert (done.returncode, done.stderr) == (1, message)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("1 / 0", id="arithmetic"),
        pytest.param("open('/nowhere/x')", id="a file that we should have made"),
        pytest.param("dict()['x']", id="key"),
    ],
)
def test_a_bug_of_ours_has_its_traceback(body: str) -> None:
    done = script(body)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")


def test_a_reader_that_has_seen_enough() -> None:
    """`automedbench explain E3 | head -1`: no traceback, and the exit code that shells give for a closed pipe."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD.format(body="[print('line') for _ in range(100_000)]")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "line\n"
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait() == 128 + signal.SIGPIPE
    process.stderr.close()


def test_what_is_printed_is_in_the_log_at_once() -> None:
    """Standard output is a file in a workflow; a step that waits for another says so while it waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD.format(body="print('waiting'); time.sleep(60)")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    assert process.poll() is None
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(number: int) -> None:
    """``finally`` blocks run, whoever asked; the exit code is 128 + the signal, as a shell reports it."""
    body = "\n    ".join(
        ["try:", "    print('ready', flush=True); time.sleep(60)", "finally:", "    print('tidied', flush=True)"]
    )
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD.format(body=body)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (128 + number, "tidied\n")
    assert err == "Interrupted; what was finished is kept. Run the same command again to go on.\n"


def test_later_signals_do_not_cut_tidying_short() -> None:
    """Slurm sends SIGTERM again and again; an impatient person presses Ctrl-C twice."""
    tidy = "print('tidying', flush=True); time.sleep(1); print('tidied', flush=True)"
    body = f"try:\n        print('ready', flush=True); time.sleep(60)\n    finally:\n        {tidy}"
    process = subprocess.Popen([sys.executable, "-c", HEAD.format(body=body)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "tidying\n"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (143, "tidied\n")


@pytest.mark.parametrize("wrapped", ["RuntimeError('an import failed') from error", "BufferError('still in use')"])
def test_what_a_library_makes_of_an_interruption(wrapped: str) -> None:
    """Seen in real: a class that is made while its module is imported, and a mapped file that is closed."""
    body = f"""try:
        os.kill(os.getpid(), signal.SIGINT); time.sleep(60)
    except BaseException as error:
        raise {wrapped}"""
    done = script(body)
    assert (done.returncode, done.stderr.count("\n")) == (130, 1)
    assert done.stderr.startswith("Interrupted;")


def test_ignored_signals_stay_ignored() -> None:
    """As under nohup."""
    body = "print('ready', flush=True); time.sleep(1); print('done', flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD.format(body=body)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) and None,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "done\nafter\n")
