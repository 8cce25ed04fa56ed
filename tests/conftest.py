"""Fixtures that all tests share, and the machine that must skip nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["passed_elsewhere"]

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
REQUIRED = frozenset(filter(None, os.environ.get("AMB_REQUIRE", "").split(",")))
"""Markers whose tests must run: set where everything they need is installed, as in ``.ci/run``."""
OF_THE_STRANGER = {
    **dict.fromkeys(("test_slurm.py", "test_first_slurm.py"), "slurm"),
    **{
        f"test_{name}.py": "containers"
        for name in ("apptainer", "cli_agents", "doctor_command", "kills", "model_server")
    },
}
"""Files that use a clone of an ordinary user (tests/workflow/conftest.py) → the chain of files that share one.

The machine has one Slurm, so its tests are a chain of their own."""

LONG = ("workflow", "security")
"""Folders whose files take minutes; the others' fill the gaps at the end."""

UMASK = os.umask(0o022)
os.umask(UMASK)


@pytest.fixture(autouse=True)
def same_umask() -> Iterator[None]:
    """The umask of the start, before and after each test.

    Commands and steps called in this process set their own, also in fixtures that are set up before this one.
    """
    os.umask(UMASK)
    yield
    os.umask(UMASK)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a marker in ``AMB_REQUIRE`` that does not exist; take signals that a caller like ``nohup`` ignores."""
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    # Tens of thousands of files of tests need not survive a power cut; tests of syncing look at the call.
    os.fsync = lambda handle: None
    # Where Slurm is installed but not running, its plugin would wait ten seconds for it in every call of Snakemake.
    os.environ.setdefault("SLURM_CONF", os.devnull)
    known = {line.split(":")[0] for line in config.getini("markers")}
    if unknown := REQUIRED - known:
        raise pytest.UsageError(f"AMB_REQUIRE: no such marker: {', '.join(sorted(unknown))}")


def pytest_unconfigure() -> None:
    """End what serves a process of ours until its end, before Python warns that it still runs."""
    mine = os.getpid()
    if (scratch := sys.modules.get("automedbench.sandbox.container.scratch")) and mine in scratch._caretakers:
        caretaker = scratch._caretakers.pop(mine)
        caretaker.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # as long as a forgotten process holds the socket
            caretaker.process.wait(timeout=10)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one process (``pytest -n``): its tests share what they have set up."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        """Files in the order of collection; those that share a clone of the stranger are one."""

        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return OF_THE_STRANGER.get(Path(file).name, file)

    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that no process is left alone with it at the end."""
    for item in items:
        if "stranger" in getattr(item, "fixturenames", ()) and item.path.name not in OF_THE_STRANGER:
            raise pytest.UsageError(f"{item.path.name} uses a clone of the stranger: name it in OF_THE_STRANGER")
    items.sort(key=lambda item: (item.path.name not in OF_THE_STRANGER, item.path.parent.name not in LONG))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where ``AMB_REQUIRE`` names a marker of the test."""
    report = yield
    missing = REQUIRED.intersection(mark.name for mark in item.iter_markers())
    if report.skipped and missing and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"AMB_REQUIRE asks for {', '.join(sorted(missing))}, but the test was skipped: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Where anything is required, no module may be skipped as a whole: its markers would never be seen."""
    report = yield
    if report.outcome == "skipped" and REQUIRED:
        report.outcome = "failed"
        report.longrepr = f"AMB_REQUIRE is set, but a whole module was skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference material beside the repository (golden data, real data sets); absent on a user's machine."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no reference material beside the repository (../shared)")
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium, of one module: while Playwright's loop runs, ``asyncio.run`` fails in all other tests."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser found (looked for {', '.join(BROWSERS)})")
    flags = [*QUIET, "--no-sandbox"] if os.geteuid() == 0 else list(QUIET)
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()
