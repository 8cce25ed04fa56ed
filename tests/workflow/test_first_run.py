"""The first afternoon: planted faults are named with their next step, and a sound set-up gives no alarm.

Servers are real ones on loopback. A row of the table is a fault of a set-up: how it is planted, what its line must say.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml
from upstreams import Seen, WebServer, certificate

from automedbench.agent.protocols import read_reply
from automedbench.base.errors import ConfigError
from automedbench.campaign.load import lacks_first_run
from automedbench.commands import main
from automedbench.commands._campaign import select_campaign
from automedbench.commands._machine.examine import Host, ProbeResult, examine
from automedbench.commands._machine.first import models
from automedbench.commands._machine.table import PROBES
from automedbench.planning.load import plan
from automedbench_rehearsal.model_server.chat import Chat, completion
from automedbench_rehearsal.model_server.gemini import Gemini
from automedbench_rehearsal.model_server.http import Answer, HttpServer
from automedbench_rehearsal.model_server.messages import Messages
from automedbench_rehearsal.model_server.responses import Responses
from automedbench_rehearsal.model_server.wire import Call, Said, Usage, Wire

ROOT = Path(__file__).resolve().parents[2]
TASK, KEY = "bccd-det-task", "sk-canary-0123456789abcdef"
CARD: dict[str, Any] = yaml.safe_load((ROOT / "config/tasks/detection" / f"{TASK}.yaml").read_text())
FILE = b"one small file\n"
Plant = Callable[["Laptop"], AbstractContextManager[Host]]


@dataclass(frozen=True)
class Fault:
    """A planted fault; ``says`` stands in its line, ``fix`` in the next step; without both the set-up is sound."""

    name: str
    setup: str
    plant: Plant
    probe: str
    says: str = ""
    fix: str = ""


@dataclass
class Laptop:
    """A folder with a campaign of one agent on one task; what it needs is served on loopback."""

    folder: Path
    patch: pytest.MonkeyPatch

    def host(self, agent: Mapping[str, Any], source: Mapping[str, Any] | None = None, **changes: Any) -> Host:
        """The campaign's host; ``source``: of its data set, which is otherwise fetched already."""
        card = CARD | {"dataset": CARD["dataset"] | {"homepages": [], "sources": [source] if source else []}}
        for path, content in ((f"cards/{TASK}.yaml", card), ("agents.yaml", {"agents": {"one": dict(agent)}})):
            (self.folder / path).parent.mkdir(exist_ok=True)
            (self.folder / path).write_text(yaml.safe_dump(content))
        names = ("raw", "public", "private", "manifests")
        settings = {
            "agents_file": "agents.yaml",
            "cards": ["cards"],
            "matrix": {"agents": ["one"], "tasks": [TASK], "tiers": ["lite"], "repeats": 1},
            "data": {name: f"data/{name}" for name in names},
            **changes,
        }
        (self.folder / "config").mkdir(exist_ok=True)
        (self.folder / "config/config.yaml").write_text(yaml.safe_dump(settings))
        return Host(plan(settings, []), self.folder / "images", self.folder, record=self.folder / "recorded")


SCRIPTED = {"provider": "baseline", "baseline": "empty", "trusted": True}


# --- models ---------------------------------------------------------------------------------------------------


def sound(body: Mapping[str, Any]) -> Answer:
    """A model that does as it is told: a call, JSON, a reply that ends at its limit; whole or as a stream."""
    if body["max_tokens"] == models.CUT_TOKENS:
        usage = Chat().counted(models_usage(20, models.CUT_TOKENS))
        whole = completion("1 2 3 4", finish="length", usage=usage)
    elif body.get("tools"):
        call = {"id": "c", "type": "function", "function": {"name": "note", "arguments": '{"text": "READY"}'}}
        whole = completion(None, finish="tool_calls", tool_calls=[call])
    else:
        whole = completion('{"ready": true}')
    return Answer(body=whole, events=Chat().events(whole, body) if body.get("stream") else ())


def models_usage(prompt: int, output: int) -> Usage:
    return Usage(prompt, output)


def sound_in(wire: Wire) -> Callable[[Mapping[str, Any]], Answer]:
    """The same in another protocol."""

    def reply(body: Mapping[str, Any]) -> Answer:
        asked = wire.read(body, "/v1beta/models/m:generateContent")
        is_cut = asked.limit == models.CUT_TOKENS
        calls = () if is_cut else (Call("call-1", "note", {"text": "READY"}),)
        said = Said(1, "1 2 3" * is_cut, calls, Usage(20, asked.limit if is_cut else 9), "", "c")
        whole = wire.whole(said, asked)
        return Answer(body=whole, events=wire.events(whole, body) if asked.stream else ())

    return reply


def model(
    reply: Callable[[Mapping[str, Any]], Answer] = sound,
    listed: Mapping[str, Any] | None = None,
    judge: Mapping[str, Any] | None = None,
    **entry: Any,
) -> Plant:
    """A campaign whose agent (or judge) asks a server that answers so."""

    @contextlib.contextmanager
    def planted(at: Laptop) -> Iterator[Host]:
        at.patch.setenv("LAB_KEY", KEY)
        listing = {"data": [{"id": "m"} | dict(listed or {})]}
        server = HttpServer(
            0, lambda _path, _headers, data: reply(json.loads(data)), lambda _path, _headers: Answer(200, listing)
        )
        server.start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        at.patch.setenv("http_proxy", url.removesuffix("/v1"))
        at.patch.setenv("no_proxy", "")
        told = {"model": "m", "base_url": url, "api_key_env": "LAB_KEY"} | entry
        try:
            if judge is None:
                yield at.host({"provider": "openai"} | told)
            else:
                (at.folder / "judges.yaml").write_text(json.dumps({"judges": {"one": told | dict(judge)}}))
                panel = {"kind": "llm", "panel": ["one"]}
                yield at.host(SCRIPTED, judges_file=str(at.folder / "judges.yaml"), judge=panel)
        finally:
            server.stop()

    return planted


def refuses(status: int, message: str = "no", **headers: str) -> Plant:
    return model(lambda _body: Answer(status, {"error": {"message": message}}, headers))


def without(**changes: Any) -> Callable[[Mapping[str, Any]], Answer]:
    """The sound answer to a request as if these fields of it were other ones."""
    return lambda body: sound(dict(body) | changes)


def no_usage(body: Mapping[str, Any]) -> Answer:
    return Answer(body=sound(body).body | {"usage": None})


def endless(body: Mapping[str, Any]) -> Answer:
    if body["max_tokens"] != models.CUT_TOKENS:
        return sound(body)
    return Answer(body=completion("1 2 3 4", usage=Chat().counted(models_usage(20, 1200))))


@contextlib.contextmanager
def opened_tls(at: Laptop) -> Iterator[Host]:
    with ExitStack() as stack:
        server = stack.enter_context(WebServer(lambda _: (200, {}, b"{}"), certificate(at.folder, "localhost")))
        yield stack.enter_context(model(base_url=f"https://localhost:{server.port}/v1")(at))


@contextlib.contextmanager
def clock_off(at: Laptop) -> Iterator[Host]:
    at.patch.setattr(BaseHTTPRequestHandler, "date_time_string", lambda *_: "Thu, 01 Jan 2026 00:00:00 GMT")
    with model()(at) as host:
        yield host


PRICED = {"pricing": {"input": "3", "output": "15", "as_of": "2026-11-01", "source": "by hand"}}
MODELS = (
    Fault("sound model", "laptop", model(**PRICED), "models"),
    Fault("sound stream", "laptop", model(stream=True), "models"),
    Fault("sound server of one's own", "laptop", model(listed={"max_model_len": 262144}), "models"),
    Fault("sound Messages", "laptop", model(sound_in(Messages()), protocol="messages", stream=True), "models"),
    Fault("sound Responses", "laptop", model(sound_in(Responses()), protocol="responses"), "models"),
    Fault("sound Gemini", "laptop", model(sound_in(Gemini()), protocol="gemini"), "models"),
    Fault("sound judge", "laptop", model(judge={}), "judges"),
    Fault("wrong key", "laptop", refuses(401, "bad key"), "models", "refuses the key (HTTP 401)", "key into LAB_KEY"),
    Fault("no credit", "laptop", refuses(402), "models", "no credit (HTTP 402)", "Add credit"),
    Fault("quota used up", "laptop", refuses(429, "insufficient_quota"), "models", "no credit", "Add credit"),
    Fault("429 at once", "laptop", refuses(429, "slow down"), "models", "for its rate (HTTP 429)", "fewer runs"),
    Fault(
        "model renamed",
        "laptop",
        model(lambda _body: Answer(404, {"error": {"message": "unknown"}}), {"id": "m-2"}),
        "models",
        "does not have the model 'm'",
        "one that it lists: m-2",
    ),
    Fault("path wrong", "laptop", refuses(404), "models", "has no /chat/completions", "Check base_url"),
    Fault("no tools", "laptop", model(without(tools=None)), "models", "ignores tools", "native_tools: false"),
    Fault(
        "tools refused",
        "laptop",
        refuses(400, '"auto" tool choice requires --enable-auto-tool-choice'),
        "models",
        "refuses the request (HTTP 400)",
        "parser of tool calls",
    ),
    Fault("temperature", "laptop", refuses(400, "temperature: only 1"), "models", "HTTP 400", "temperature: null"),
    Fault("max_tokens ignored", "laptop", model(endless), "models", "1200 tokens, where 64", "extra_body"),
    Fault("small window", "laptop", model(listed={"max_model_len": 4096}), "models", "4096", "context_tokens: 4096"),
    Fault("no stream", "laptop", model(without(stream=False), stream=True), "models", "whole", "stream: false"),
    Fault("no usage", "laptop", model(no_usage), "models", "reports no usage", "Switch it on"),
    Fault("no price", "laptop", model(base_url="http://lab.invalid/v1"), "models", "has no price", "Add 'pricing'"),
    Fault("no key", "laptop", model(api_key_env="LAB_NO_KEY"), "models", "LAB_NO_KEY is not set", "Export it"),
    Fault("dead host", "laptop", model(base_url="https://lab.invalid/v1"), "models", "no answer", "HTTPS_PROXY"),
    Fault("not started", "laptop", model(base_url="http://127.0.0.1:9/v1"), "models", "no answer", "server running"),
    Fault("opened TLS", "laptop", opened_tls, "models", "certificate that is not trusted", "SSL_CERT_FILE"),
    Fault("clock off", "laptop", clock_off, "models", "clock here is off", "timedatectl"),
    Fault("server down", "laptop", refuses(503), "models", "HTTP 503", "status"),
    Fault("log-in page", "laptop", model(lambda _body: Answer(200, b"<html>")), "models", "does not speak", "log-in"),
    Fault(
        "judge without JSON",
        "laptop",
        model(lambda _body: Answer(body=completion("Ready!")), judge={}),
        "judges",
        "writes no JSON",
        "structured: text",
    ),
)


# --- hosts of data --------------------------------------------------------------------------------------------


def file_host(answer: Callable[[Seen], tuple[int, dict[str, str], bytes]], context: bool = False, **told: Any) -> Plant:
    """A campaign whose data set is one file of a host that answers so; ``told``: what the card says of it."""

    @contextlib.contextmanager
    def planted(at: Laptop) -> Iterator[Host]:
        with WebServer(answer, certificate(at.folder, "localhost") if context else None) as server:
            url = f"https://localhost:{server.port}" if context else server.url
            download = {"name": f"{url}/data.csv", "bytes": len(FILE)} | told
            yield at.host(SCRIPTED, {"kind": "url", "where": url, "downloads": [download]})

    return planted


def has_file(_seen: Seen) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, FILE


def login_page(_seen: Seen) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "text/html"}, b"<html>log in</html>"


@contextlib.contextmanager
def dead_host(at: Laptop) -> Iterator[Host]:
    at.patch.setattr("automedbench.datasets.download.transfer.LONGEST_PAUSE_S", 0.0)
    yield at.host(SCRIPTED, {"kind": "url", "where": "http://127.0.0.1:9", "downloads": []})


RIGHT = f"sha256:{hashlib.sha256(FILE).hexdigest()}"
HOSTS = (
    Fault("sound host", "laptop", file_host(has_file, checksum=RIGHT), "hosts"),
    Fault("host 403", "laptop", file_host(lambda _: (403, {}, b"")), "hosts", "HTTP 403", "may be blocked"),
    Fault("moved file", "laptop", file_host(lambda _: (404, {}, b"")), "hosts", "HTTP 404", "was moved"),
    Fault("wrong size", "laptop", file_host(has_file, bytes=99), "hosts", "expected 99 bytes", "was changed"),
    Fault("wrong hash", "laptop", file_host(has_file, checksum=f"md5:{'1' * 32}"), "hosts", "md5", "was changed"),
    Fault("log-in page for a file", "laptop", file_host(login_page), "hosts", "a web page", "Log in at"),
    Fault("dead host of data", "laptop", dead_host, "hosts", "connection was refused", "HTTPS_PROXY"),
    Fault("opened TLS of data", "laptop", file_host(has_file, True), "hosts", "not trusted", "REQUESTS_CA_BUNDLE"),
)

FAULTS = (*MODELS, *HOSTS)


def missed(fault: Fault, found: list[ProbeResult]) -> str:
    """What is wrong with the lines about a fault; empty when they name it, or when a sound set-up gives no alarm."""
    bad = [each for each in found if each.status != "ok"]
    if any(KEY in each.message + each.fix for each in found):
        return "a key is shown"
    if not fault.says:
        return f"false alarm: {bad}" if bad or not found else ""
    named = any(fault.says in each.message and fault.fix in each.fix for each in bad)
    return "" if named else f"not named: {found}"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.setup}-{fault.name}".replace(" ", "-"))
def test_a_planted_fault_is_named(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (probe,) = (each for each in PROBES if each.name == fault.probe)
    with ExitStack() as stack:
        host = stack.enter_context(fault.plant(Laptop(tmp_path, monkeypatch)))
        assert missed(fault, examine(host, [probe], 60)) == ""


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("profiles").symlink_to(ROOT / "profiles")
    asked: list[Any] = []
    with model(lambda body: asked.append(body) or sound(body), **PRICED)(Laptop(tmp_path, monkeypatch)):
        for wrong in (("--record=config/config.yaml",), ("--config", "results=agents.yaml/below")):
            with pytest.raises(ConfigError, match=r"cannot be written: (File exists|Not a directory)"):
                main(["first-run", "--only", "models", "--yes", *wrong])
    assert asked == []


def test_a_paid_reply_with_a_warning_is_not_paid_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("profiles").symlink_to(ROOT / "profiles")
    asked: list[Any] = []
    with model(lambda body: asked.append(body) or no_usage(body), **PRICED)(Laptop(tmp_path, monkeypatch)):
        status, found = first_run(capsys, "--only", "models", "--yes")
        assert (status, [each["status"] for each in found], len(asked)) == (0, ["warn", "ok"], 2)
        assert (first_run(capsys, "--only", "models", "--yes"), len(asked)) == ((0, found), 2)
        first_run(capsys, "--only", "models", "--yes", "--again")
        assert len(asked) == 4


# --- the command ----------------------------------------------------------------------------------------------


def first_run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, str]]]:
    status = 0
    try:
        main(["first-run", "--json", *words])
    except SystemExit as stopped:
        status = int(str(stopped.code))
    return status, json.loads(capsys.readouterr().out)


def test_money_is_spent_with_consent_only_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prices by hand: 600 × 3 + (2048 + 64) × 15 USD per million = 0.0335."""
    monkeypatch.chdir(tmp_path)
    Path("profiles").symlink_to(ROOT / "profiles")
    asked: list[Any] = []

    def counting(body: Mapping[str, Any]) -> Answer:
        asked.append(body)
        return sound(body)

    with model(counting, **PRICED)(Laptop(tmp_path, monkeypatch)):
        refused = {"message": "not tried", "fix": "models may cost 0.0335 USD: add --yes."}
        assert {"probe": "models", "status": "warn"} | refused in first_run(capsys, "--only", "models")[1]
        assert "add --usd 0.04" in first_run(capsys, "--only", "models", "--usd", "0.01", "--yes")[1][0]["fix"]
        for wrong in ("--usd=nan", "--usd=-1", "--record=config/config.yaml"):
            with pytest.raises((SystemExit, ConfigError)):
                main(["first-run", "--only", "models", "--yes", wrong])
        assert asked == []
        with monkeypatch.context() as patch:  # what lacks its key is no success that is kept
            patch.delenv("LAB_KEY")
            assert first_run(capsys, "--only", "models", "--yes")[1][0]["status"] == "FAIL"
        status, found = first_run(capsys, "--only", "models", "--yes", "--record", "kept")
        assert (status, [each["status"] for each in found], len(asked)) == (0, ["ok"], 2)
        assert first_run(capsys, "--only", "models")[1] == found  # kept, so that nothing need be agreed to
        assert len(asked) == 2
        assert not lacks_first_run(select_campaign(Namespace()))
        Path("results/first-run/report.json").rename("report.json")
        assert lacks_first_run(select_campaign(Namespace()))
        Path("report.json").rename("results/first-run/report.json")
    rows = [json.loads(line) for line in Path("kept/chat.jsonl").read_text().splitlines()]
    assert [(row["form"], row["path"], row["request"]) for row in rows] == [
        ("whole", "/v1/chat/completions", body) for body in asked
    ]
    assert read_reply("chat", json.dumps(rows[0]["response"]).encode(), []).calls[0].name == "note"
    report = Path("results/first-run/report.txt").read_text()
    assert "0.000039 USD" in report  # 3 × 3 + 2 × 15 per million
    assert KEY not in report + Path("results/first-run/report.json").read_text() + str(rows)
