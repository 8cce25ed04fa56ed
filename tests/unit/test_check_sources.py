"""``tools/check_sources.py``: what hosts on loopback answer, against what the card says; no file is downloaded."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_sources import Part, check, main
from upstreams import Seen, WebServer

from automedbench.base.cards import Source
from automedbench.base.errors import ConfigError
from automedbench.datasets.download import transfer
from automedbench.datasets.download.access import Access

ROOT = Path(__file__).resolve().parents[2]
COMMIT, OTHER = "a" * 40, "b" * 40
SHA = "sha256:" + "1" * 64
Reply = tuple[int, dict[str, str], bytes]


def answering(**paths: Reply) -> WebServer:
    """A server of these paths; that of anything else is not there."""
    return WebServer(lambda seen: paths.get(seen.target.removeprefix("/"), (404, {}, b"no")))


def file_of(size: int = 10, **headers: str) -> Reply:
    return 206, {"Content-Range": f"bytes 0-0/{size}", "Content-Length": "1", **headers}, b"x"


def checked(tmp_path: Path, mirrors: dict[str, str] | None = None, **source: Any) -> list[tuple[str, str]]:
    """Status and message of each entry of a source; a failure's fix is never empty."""
    part = Part("set", "card.yaml", "s", Source.model_validate(source), "https://page.example")
    found = list(check(part, tmp_path, Access(mirrors or {}, patience_s=0.001)))
    assert all(each.fix for each in found if each.status != "ok")
    return [(each.status, each.message.removeprefix("card.yaml: s: ")) for each in found]


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As RFC 9110 means them: FAIL where something was changed or is gone, a warning where that cannot be told."""
    monkeypatch.setattr(transfer, "LONGEST_PAUSE_S", 0.0)
    replies: dict[str, tuple[Reply, str, str]] = {
        "plain": (file_of(), "ok", "plain, 10 bytes"),
        "larger": (file_of(12), "FAIL", "expected 10 bytes as the card says, found 12"),
        "stored": ((302, {"Location": "/plain"}, b""), "ok", "stored, 10 bytes"),
        "login": ((401, {}, b""), "warn", "HTTP 401"),
        "refused": ((403, {}, b""), "warn", "HTTP 403"),
        "page": (file_of(**{"Content-Type": "text/html"}), "warn", "a web page"),
        "nothing": ((404, {}, b""), "FAIL", "HTTP 404"),
        "withdrawn": ((410, {}, b""), "FAIL", "HTTP 410"),
        "busy": ((429, {}, b""), "warn", "HTTP 429 (rate limit exceeded)"),
        "ill": ((503, {}, b""), "warn", "HTTP 503"),
    }
    with answering(**{name: reply for name, (reply, _, _) in replies.items()}) as server:
        downloads = [{"name": name, "bytes": 10} for name in replies]
        found = checked(tmp_path, kind="url", where=server.url, downloads=downloads)
    wrong = [
        (name, each)
        for (name, (_, status, says)), each in zip(replies.items(), found, strict=True)
        if each[0] != status or says not in each[1]
    ]
    assert wrong == []
    assert {seen.headers["range"] for seen in server.seen} == {"bytes=0-0"}


def test_hub(tmp_path: Path) -> None:
    """Commit, names and published checksums are compared before any file is asked for."""
    files = [{"rfilename": "w.bin", "size": 9, "lfs": {"sha256": "1" * 64}}, {"rfilename": "c.json", "size": 7}]
    downloads = [
        {"name": "w.bin", "bytes": 9, "checksum": SHA},
        {"name": "w.bin", "checksum": "sha256:" + "3" * 64},
        {"name": "*.json"},
        {"name": "*.txt"},
    ]
    told = json.dumps({"sha": COMMIT, "siblings": files}).encode()
    paths = {f"api/models/o/m/revision/{revision}?blobs=true": (200, {}, told) for revision in (COMMIT, OTHER)}
    paths |= {f"o/m/resolve/{COMMIT}/{name}": file_of(size) for name, size in (("w.bin", 9), ("c.json", 7))}
    with answering(**paths) as server:
        hub = {"kind": "huggingface_model", "where": "o/m", "downloads": downloads}
        found = checked(tmp_path, {"huggingface.co": server.url}, **hub, revision=COMMIT)
        assert [status for status, _ in found] == ["ok", "FAIL", "ok", "FAIL"]
        assert ("found sha256:1111" in found[1][1], "no file matches '*.txt'" in found[3][1]) == (True, True)
        moved = checked(tmp_path, {"huggingface.co": server.url}, **hub, revision=OTHER)
        assert {status for status, _ in moved} == {"FAIL"}


def test_other_kinds(tmp_path: Path) -> None:
    """Series of TCIA, first and last of numbered files, the table of rows, a person's page, a commit of a clone."""
    series = json.dumps([{"SeriesInstanceUID": "1.2", "PatientID": "P-1", "StudyInstanceUID": "1"}]).encode()
    api = "nbia-api/services/v1"
    paths = {
        f"{api}/getSeries?Collection=C&Modality=CT&format=json": (200, {}, series),
        f"{api}/getImage?SeriesInstanceUID=1.2": file_of(5),
        **{name: file_of(size) for name, size in (("n1", 1), ("n9", 9), ("table.csv", 5))},
        "page": (200, {"Content-Type": "text/html"}, b"<html>"),
    }
    with answering(**paths) as server:
        tcia = {"kind": "tcia", "where": "C", "downloads": [{"name": "CT P-?"}, {"name": "CT Q-?"}]}
        found = checked(tmp_path, {"services.cancerimagingarchive.net": server.url}, **tcia)
        assert [status for status, _ in found] == ["ok", "FAIL"]
        rows = {"name": "{id}.png", "rows": {"table": "table.csv"}}
        plain = checked(tmp_path, kind="url", where=server.url, downloads=[rows, {"name": "n{n}", "numbers": [1, 9]}])
        assert [text for _, text in plain] == ["table.csv, 5 bytes", "n1, 1 bytes", "n9, 9 bytes"]
        assert checked(tmp_path, kind="manual", where=f"{server.url}/page") == [("ok", "its page answers")]
    subprocess.run(["git", "init", "-q", str(tmp_path / "r")], check=True)
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "-C", str(tmp_path / "r"), *who, "commit", "-qm", "x", "--allow-empty"], check=True)
    git = {"kind": "git", "where": (tmp_path / "r").as_uri()}
    assert [checked(tmp_path, **git, revision=revision)[0][0] for revision in ("HEAD", OTHER)] == ["ok", "FAIL"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a campaign of one card."""
    card = yaml.safe_load((ROOT / "config/tasks/detection/bccd-det-task.yaml").read_text())
    (tmp_path / "cards").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "cards/bccd-det-task.yaml").write_text(yaml.safe_dump(card))
    agents = {"agents": {"one": {"provider": "baseline", "baseline": "empty", "trusted": True}}}
    (tmp_path / "agents.yaml").write_text(yaml.safe_dump(agents))
    config = {
        "agents_file": "agents.yaml",
        "cards": ["cards"],
        "matrix": {"agents": ["one"], "tasks": ["bccd-det-task"]},
        "data": {name: f"data/{name}" for name in ("raw", "public", "private", "manifests")},
        "sandbox": {"backend": "local"},
    }
    (tmp_path / "config/config.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_command(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place of the card and of the table of checkpoints, also those of `also`; exit code 3 where one is gone."""
    path = place / "cards/bccd-det-task.yaml"
    card, source = yaml.safe_load(path.read_text()), {"kind": "url"}
    gone: set[str] = set()

    def answer(seen: Seen) -> Reply:
        return (404, {}, b"") if seen.target in gone else file_of()

    with WebServer(answer) as server:
        also = [source | {"where": f"{server.url}/b"}]
        card["dataset"]["sources"] = [source | {"where": f"{server.url}/a", "also": also}]
        path.write_text(yaml.safe_dump(card))
        weights = {"name": "n", "tasks": ["bccd-det-task"], "licence": "x", "provenance": ["x"]}
        weights["source"] = source | {"where": f"{server.url}/w"}
        (place / "config/checkpoints.yaml").write_text(yaml.safe_dump({"checkpoints": {"m": weights}}))
        main(["--task", "bccd-det-task"])
        lines = capsys.readouterr().out.splitlines()
        assert lines[1] == "ok    bccd  cards/bccd-det-task.yaml: dataset.sources.0.also.0: b, 10 bytes"
        assert lines[2] == "ok    m     config/checkpoints.yaml: checkpoints.m.source: w, 10 bytes"
        assert lines[3:] == ["3 ok, 0 warnings, 0 failures"]
        gone.add("/w")
        with pytest.raises(SystemExit) as ended:
            main(["--json"])
    assert ended.value.code == 3
    assert [each["status"] for each in json.loads(capsys.readouterr().out)] == ["ok", "ok", "FAIL"]


def test_wrong_calls(place: Path) -> None:
    for arguments, told in (
        (["--task", "bccd-det-tsk"], "no task 'bccd-det-tsk' (did you mean 'bccd-det-task'?)"),
        (["--config", "fetch={offline: true}"], "fetch.offline: is true"),
    ):
        with pytest.raises(ConfigError, match=re.escape(told)):
            main(arguments)
