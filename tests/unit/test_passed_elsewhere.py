"""What one session records as passed and another leaves out: two small sessions, as ``.ci/run`` has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ID = re.compile(
    r"^(?:\[gw.*\] [A-Z]+ )?(test_\S+::.+?)(?: (?:PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b.*)? *$", re.MULTILINE
)
INI = "[pytest]\nmarkers =\n  browser: needs one\n"
PLAIN = """
import pytest

def test_passes(): pass
@pytest.mark.parametrize("text", ["with a space"])
def test_named(text): pass
@pytest.mark.browser
def test_looks(): pass
def test_fails(): assert False
def test_is_skipped(): pytest.skip("lacks something")
@pytest.mark.xfail
def test_fails_as_expected(): assert False
@pytest.fixture
def breaks():
    yield
    assert False
def test_breaks_at_its_end(breaks): pass
"""
ASKING = """
import os

def test_asks(): assert os.geteuid() >= 0
def test_beside_it(): pass
"""
WHOLE = "def test_alone(): pass"
SHARING = """
import os
import pytest

def test_before(): pass
@pytest.fixture(scope="module")
def user(): return os.geteuid()
def test_of_the_user(user): pass
"""


def session(root: Path, folder: Path, processes: str, **environment: str) -> tuple[str, set[str]]:
    """What pytest says, and the ids of the tests that it ran."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "xdist", "-n", processes, "-p", "passed_elsewhere"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout, set(ID.findall(done.stdout))


def test_what_passed_and_asked_nothing_is_left_out(root: Path, tmp_path: Path) -> None:
    """A question in a test is that test's, one in a fixture its file's; a whole file is not imported again."""
    files = {"plain": PLAIN, "asking": ASKING, "sharing": SHARING, "whole": WHOLE}
    for name, text in {"pytest.ini": INI, **{f"test_{name}.py": text for name, text in files.items()}}.items():
        (tmp_path / name).write_text(text)
    record = tmp_path / "passed"
    _, all_of_them = session(root, tmp_path, "1", AMB_RECORD=str(record))
    assert len(all_of_them) == 12
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    passed = {"test_asking.py::test_beside_it", "test_whole.py::test_alone"}
    passed |= {f"test_plain.py::{test}" for test in ("test_passes", "test_named[with a space]", "test_looks")}
    assert set(record.read_text().splitlines()) == {f"{python} {test}" for test in (*passed, "test_whole.py")}
    (tmp_path / "test_whole.py").write_text("assert False")

    said, ran = session(root, tmp_path, "0", AMB_PASSED=str(record), AMB_REQUIRE="browser")
    assert ran == all_of_them - passed | {"test_plain.py::test_looks"}
    assert "left out: 5 tests that passed elsewhere" in said
    record.write_text(record.read_text().replace(f"{python} ", "3.99 "))
    (tmp_path / "test_whole.py").write_text(WHOLE)
    assert session(root, tmp_path, "0", AMB_PASSED=str(record))[1] == all_of_them
