"""Tests that passed on another machine need not run on this one: `.ci/run` tries most of them as a stranger already.

``AMB_RECORD`` names the file to which a session adds the ids of what passed. Left out are tests that asked who the
user is, or what is installed: another machine would answer otherwise; and files with a fixture that asked, whose answer
their tests may share. Files that passed as a whole, without a test that needs anything, stand there too: they are not
even imported. ``AMB_PASSED`` names such a file: what stands in it is not run, if the Python was of the same minor
version, and the test's markers are not required here.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

RECORD, PASSED = os.environ.get("AMB_RECORD"), os.environ.get("AMB_PASSED")
QUESTIONS = ((os, "geteuid"), (os, "getuid"), (shutil, "which"), (importlib.util, "find_spec"))
"""What the answer to depends on the user, or on what is installed."""
COMPARING = ("automedbench.sandbox.airlock.collector", "nltk.pathsec")
"""Modules that ask to compare the user with the owner of files: those of a test are its user's everywhere."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

_asked = False


def _noted(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def asked(*arguments: Any, **options: Any) -> Any:
        global _asked
        _asked |= sys._getframe(1).f_globals.get("__name__") not in COMPARING
        return function(*arguments, **options)

    return asked


if RECORD:
    for place, name in QUESTIONS:
        setattr(place, name, _noted(getattr(place, name)))


class Record:
    """Which tests ran to their end, which of them failed or were skipped, which tests and files asked."""

    def __init__(self, path: Path, markers: frozenset[str]) -> None:
        self.path, self.markers = path, markers
        self.ended: set[str] = set()
        self.other: set[str] = set()
        self.asking: set[str] = set()
        self.needing: set[str] = set()

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of each phase of each test, in the process that collects the others' reports."""
        if not report.passed:
            self.other.add(report.nodeid)
        if report.when == "teardown":
            self.ended.add(report.nodeid)
        if getattr(report, "asked", False):
            self.asking.add(report.nodeid if report.when == "call" else _file(report.nodeid))
        if self.markers.intersection(report.keywords):
            self.needing.add(_file(report.nodeid))

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        """Append the ids."""
        passed = [test for test in sorted(self.ended - self.other) if not {test, _file(test)} & self.asking]
        partly = {_file(test) for test in (self.ended | self.other) - set(passed)} | self.needing
        passed += sorted({_file(test) for test in passed} - partly)
        with open(self.path, "a") as stream:
            stream.writelines(f"{PYTHON} {test}\n" for test in passed)


def pytest_configure(config: pytest.Config) -> None:
    """Keep the record where no other process does."""
    if RECORD and not hasattr(config, "workerinput"):
        markers = frozenset(line.split(":")[0] for line in config.getini("markers"))
        config.pluginmanager.register(Record(Path(RECORD), markers))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with each phase whether the machine was asked about meanwhile."""
    global _asked
    report = yield
    report.asked, _asked = _asked, False
    return report


def pytest_report_header() -> str | None:
    """How many are left out."""
    n_tests = sum("::" in test for test in _passed())
    return f"left out: {n_tests} tests that passed elsewhere ({PASSED})" if PASSED else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out whole files."""
    known = collection_path.suffix == ".py" and collection_path.is_relative_to(config.rootpath)
    return (known and collection_path.relative_to(config.rootpath).as_posix() in _passed()) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what passed elsewhere."""
    passed, required = _passed(), set(filter(None, os.environ.get("AMB_REQUIRE", "").split(",")))
    kept, left = [], []
    for item in items:
        needed = required.intersection(mark.name for mark in item.iter_markers())
        (left if item.nodeid in passed and not needed else kept).append(item)
    if left:
        items[:] = kept
        config.hook.pytest_deselected(items=left)


@functools.cache
def _passed() -> frozenset[str]:
    if not PASSED or not Path(PASSED).is_file():
        return frozenset()
    lines = (line.partition(" ") for line in Path(PASSED).read_text().splitlines())
    return frozenset(test for python, _, test in lines if python == PYTHON)


def _file(test: str) -> str:
    return test.partition("::")[0]
