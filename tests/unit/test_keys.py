"""Keys from a variable or a protected file; no message ever holds a value."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.keys import read_keys, shown_place
from automedbench.campaign.agents import Agent

SECRET = "sk-canary-0123456789"


def agent(**options: Any) -> Agent:
    return Agent(provider="openai", model="m", base_url="https://user:word@host.example/v1", **options)


def key_file(folder: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path = folder / "keys.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


def test_a_variable() -> None:
    assert read_keys(agent(api_key_env="K"), {"K": f" {SECRET}\n"}) == (SECRET,)


@pytest.mark.parametrize("environment", [{}, {"K": ""}, {"K": " "}], ids=["unset", "empty", "blank"])
def test_an_unset_variable(environment: dict[str, str]) -> None:
    with pytest.raises(InfrastructureError, match=r"K is not set.* https://host\.example/v1") as caught:
        read_keys(agent(api_key_env="K"), environment)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize("value", [f"{SECRET} {SECRET}", f"{SECRET}\n{SECRET}", f"{SECRET}ü", f"{SECRET}\0"])
def test_a_variable_with_no_key(value: str) -> None:
    with pytest.raises(ConfigError, match="K: ") as caught:
        read_keys(agent(api_key_env="K"), {"K": value})
    assert SECRET not in str(caught.value)


def test_a_file_with_four_keys(tmp_path: Path) -> None:
    """The report track's form: exactly four lines ``sk-…``."""
    keys = tuple(f"sk-Ab_{number}-xyz" for number in range(4))
    path = key_file(tmp_path, "\n".join(keys) + "\n")
    assert read_keys(agent(api_key_file=str(path), api_key_rotation=True), {}) == keys


@pytest.mark.parametrize("text", [f"\n\n{SECRET}\n \n", f"{SECRET}\r\n", f"  {SECRET}  "])
def test_blanks_are_ignored(tmp_path: Path, text: str) -> None:
    assert read_keys(agent(api_key_file=str(key_file(tmp_path, text))), {}) == (SECRET,)


def test_home_is_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    key_file(tmp_path, SECRET)
    assert read_keys(agent(api_key_file="~/keys.txt"), {}) == (SECRET,)


REFUSED: dict[str, tuple[str | bytes, int, str]] = {
    "group may read": (SECRET, 0o640, "has mode 0640"),
    "others may write": (SECRET, 0o602, "has mode 0602"),
    "empty": ("\n \n", 0o600, "contains no key"),
    "two words": (f"{SECRET}\n{SECRET} comment\n", 0o600, "line 2 is not one key"),
    "not ASCII": (f"{SECRET}ä", 0o600, "line 1 is not one key"),
    "binary": (b"\xff\xfe\x00" + SECRET.encode(), 0o600, "line 1 is not one key"),
    "large": (f"{SECRET}\n" * 10_000, 0o600, "not a small regular file"),
}


@pytest.mark.parametrize(("text", "mode", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_files(tmp_path: Path, text: str | bytes, mode: int, problem: str) -> None:
    path = key_file(tmp_path, text, mode)
    with pytest.raises(ConfigError) as caught:
        read_keys(agent(api_key_file=str(path)), {})
    assert problem in str(caught.value) and str(path) in str(caught.value)
    assert SECRET not in str(caught.value)


def test_absent_and_odd_files(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="cannot be read: No such file"):
        read_keys(agent(api_key_file=str(tmp_path / "nowhere")), {})
    with pytest.raises(InfrastructureError, match="cannot be read: Is a directory"):
        read_keys(agent(api_key_file=str(tmp_path)), {})


def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigError, match="not a small regular file"):
        read_keys(agent(api_key_file=str(tmp_path / "pipe")), {})


def test_not_in_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither directly nor behind a link: the next ``git add`` would take it."""
    checkout, outside = tmp_path / "checkout", tmp_path / "outside"
    for folder in (checkout / ".git", checkout / "config", outside):
        folder.mkdir(parents=True)
    path = key_file(checkout / "config", SECRET)
    link = outside / "link"
    link.symlink_to(path)
    kept = key_file(outside, SECRET)
    monkeypatch.chdir(checkout / "config")
    for name in (path, link, Path("keys.txt")):
        with pytest.raises(ConfigError, match="lies in the repository"):
            read_keys(agent(api_key_file=str(name)), {})
    assert read_keys(agent(api_key_file=str(kept)), {}) == (SECRET,)


def test_not_beside_the_program(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout that the program runs from counts wherever one stands."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="lies in the repository"):
        read_keys(agent(api_key_file=str(root / "README.md")), {})


PLACES = {
    "https://user:word@host.example:8443/v1?key=x": "https://host.example:8443/v1",
    "http://[::1]:80/v1": "http://[::1]:80/v1",
    "host.example": "the endpoint",
    "http://host:word/": "http://host/",
    None: "the endpoint",
}


@pytest.mark.parametrize(("url", "shown"), PLACES.items(), ids=map(str, PLACES))
def test_shown_place(url: str | None, shown: str) -> None:
    assert shown_place(url) == shown
