"""A judge behind a real HTTP server on loopback: what is sent, what comes back, what goes wrong, what it costs."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hand_made_runs import conversation
from panel_fakes import ASKED, answer, judge_model
from PIL import Image

from automedbench.base.errors import ConfigError, InfrastructureError, JudgeError
from automedbench.base.files import read_record, sha256_bytes, write_record
from automedbench.base.records import FileEntry, JudgeRecord, SubmissionRecord
from automedbench.base.untrusted.picture import small_picture
from automedbench.campaign.agents import JudgeModel
from automedbench.judge import judge_conversation, judge_run, load_rubric
from automedbench.judge.panel import open_panel
from automedbench.judge.panel.member import ATTEMPTS, JudgeEndpoint
from automedbench.judge.picture import collected_plot
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

KEY = "sk-canary-judge-0123456789"
GOOD = [answer("S1"), answer("S2"), answer("S3")]


def spoken(text: Any, **message: Any) -> Answer:
    return Answer(body=completion(text, **message))


@dataclass
class Asked:
    """What became of one judgement, and what the server saw."""

    record: JudgeRecord | None = None
    error: Exception | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


def ask(
    root: Path,
    answers: Sequence[Answer | str],
    *,
    plot: bytes | None = None,
    cache: Path | None = None,
    key: str = KEY,
    repeats: int = 1,
    **settings: Any,
) -> Asked:
    """Judge the careful run by one judge that gives these answers in turn, and the last one for ever."""
    found = Asked()
    given = [item if isinstance(item, Answer) else spoken(item) for item in answers]

    def opened(name: str, judge: JudgeModel, health: Path | None) -> JudgeEndpoint:
        environment = {"JUDGE_KEY": key}
        return JudgeEndpoint(name, judge, health, environment=environment, sleep=found.waits.append, jitter=lambda: 0.5)

    with ScriptedServer(answers=given) as server:
        judges = {"first": judge_model(base_url=server.url, **settings)}
        with open_panel(judges, ["first"], repeats=repeats, cache=cache, open_endpoint=opened) as panel:
            try:
                rubric = load_rubric(root / "config/rubrics", "detection")
                found.record = judge_run(conversation(), rubric, "standard", panel, plot)
            except Exception as error:
                found.error = error
        found.requests, found.headers = server.requests, server.headers
    return found


def content_of(request: dict[str, Any]) -> str:
    content = request["messages"][1]["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


# --- a good judgement -------------------------------------------------------------------------------------------


def test_three_requests_make_a_judgement(root: Path) -> None:
    found = ask(root, GOOD)
    assert found.record is not None, found.error
    assert found.record.stages == {"S1": 1.0, "S2": 1.0, "S3": 1.0}
    assert len(found.requests) == 3
    # completion() of the server counts 3 prompt and 2 completion tokens each.
    assert (found.record.tokens.prompt, found.record.tokens.completion) == (9, 6)
    assert found.headers[0]["authorization"] == f"Bearer {KEY}"


def test_the_request(root: Path) -> None:
    (first, *_) = ask(root, GOOD, extra_body={"top_p": 0.9}).requests
    assert (first["model"], first["temperature"], first["max_tokens"], first["top_p"]) == ("model-canary", 0, 4096, 0.9)
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    form = first["response_format"]["json_schema"]
    assert (first["response_format"]["type"], form["strict"]) == ("json_schema", True)
    assert form["schema"]["properties"]["criteria"]["required"] == ASKED["S1"]
    assert form["schema"]["properties"]["criteria"]["properties"]["s1a"]["properties"]["verdict"]["enum"] == [0, 1]


def test_the_schema_is_strict(root: Path) -> None:
    """Every object closed, every property required, nothing that strict endpoints refuse."""
    schema = ask(root, GOOD).requests[2]["response_format"]["json_schema"]["schema"]

    def objects(node: Any) -> list[dict[str, Any]]:
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
        found = [node] if isinstance(node, dict) and node.get("type") == "object" else []
        return found + [item for child in children for item in objects(child)]

    found = objects(schema)
    assert len(found) == 4  # answer, criteria, the verdict of s3, an error code
    for item in found:
        assert item["additionalProperties"] is False
        assert set(item["required"]) == set(item["properties"])
    text = json.dumps(schema)
    assert not [word for word in ('"$ref"', '"$defs"', '"default"', '"maxLength"') if word in text]
    assert schema["properties"]["criteria"]["properties"]["s3"]["properties"]["verdict"]["enum"] == [0, 0.5, 1]


MODES: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
    ("object", {"structured": "json_object"}, {"type": "json_object"}),
    ("text", {"structured": "text"}, None),
]


@pytest.mark.parametrize(("settings", "expected"), [row[1:] for row in MODES], ids=[row[0] for row in MODES])
def test_other_forms(settings: dict[str, Any], expected: dict[str, Any] | None, root: Path) -> None:
    fenced = [f"I look at it.\n```json\n{text}\n```" for text in GOOD]
    found = ask(root, fenced, **settings)
    assert found.record is not None, found.error
    assert found.requests[0].get("response_format") == expected


def test_what_some_models_refuse_is_not_sent(root: Path) -> None:
    (first, *_) = ask(root, GOOD, temperature=None, extra_body={"max_completion_tokens": 900}).requests
    assert not {"temperature", "max_tokens"} & set(first)


def test_an_invented_quote_is_repaired(root: Path) -> None:
    found = ask(root, [answer("S1", quote="I validated everything twice"), *GOOD])
    assert found.record is not None, found.error
    assert (found.record.judgements[0].requests, len(found.requests)) == (4, 4)
    assert "I validated everything twice" in found.requests[1]["messages"][2]["content"]


def test_a_weak_quote_is_asked_about_once_more(root: Path) -> None:
    """A look at the input proves no check; both answers cost, and there is no third."""
    weak = answer("S3", quote="print(image.shape, image.dtype, image.min(), image.max())", turn=1)
    found = ask(root, [*GOOD[:2], weak])
    assert found.record is not None, found.error
    assert (found.record.stages["S3"], found.record.judgements[0].n_weak) == (0.0, 1)
    assert [len(request["messages"]) for request in found.requests] == [2, 2, 2, 4]
    assert (found.record.tokens.prompt, found.record.tokens.completion) == (12, 8)


def test_always_invented(root: Path) -> None:
    """Three times about the run, three times about one that did nothing: the judge is to blame."""
    found = ask(root, [answer("S1", quote="I validated everything twice")])
    assert isinstance(found.error, JudgeError)
    assert len(found.requests) == 6


# --- no valid answer --------------------------------------------------------------------------------------------

NO_ANSWER: list[tuple[str, Answer, str]] = [
    ("empty", spoken(""), "the answer is empty"),
    ("null", spoken(None), "the answer is empty"),
    ("cut", spoken(GOOD[0], finish="length"), "cut off at max_tokens"),
    ("filtered", spoken(GOOD[0], finish="content_filter"), "stopped by a content filter"),
    ("refused", spoken(GOOD[0], refusal="I cannot judge this."), "the judge refused: I cannot judge this."),
    ("prose", spoken("All of it is excellent."), "no JSON object"),
]


@pytest.mark.parametrize(("given", "why"), [row[1:] for row in NO_ANSWER], ids=[row[0] for row in NO_ANSWER])
def test_no_answer(given: Answer, why: str, root: Path) -> None:
    found = ask(root, [given])
    assert isinstance(found.error, JudgeError)
    assert why in str(found.error)
    assert len(found.requests) == 6


def test_a_policy_of_the_provider_is_no_outage(root: Path) -> None:
    """Refused for its content, twice in each of three tries: the judge gave no answer, the endpoint works."""
    found = ask(root, [Answer(400, {"error": {"message": "blocked by content policy", "code": "content_filter"}})])
    assert isinstance(found.error, JudgeError)
    assert "the endpoint refuses the request for its content" in str(found.error)


def test_the_window_is_made_smaller(root: Path) -> None:
    too_long = Answer(400, {"error": {"message": "maximum context length is 8192 tokens"}})
    found = ask(root, [too_long, *GOOD])
    assert found.record is not None, found.error
    assert found.record.judgements[0].requests == 4
    # However little is shown, of this run or of one that did nothing: the entry in the judges file is wrong.
    found = ask(root, [too_long])
    assert isinstance(found.error, ConfigError)
    assert "context_tokens: the endpoint rejects" in str(found.error)


# --- endpoint ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Answer(429), Answer(503), Answer(body=b"<html>"), Answer(body={"choices": []})])
def test_transient_faults_are_repeated(fault: Answer, root: Path) -> None:
    found = ask(root, [fault, fault, *GOOD])
    assert found.record is not None, found.error
    # Full jitter fixed at ½: half of 2 s, then half of 4 s.
    assert found.waits[:2] == pytest.approx([1, 2], abs=0.2)


def test_a_server_that_says_when(root: Path) -> None:
    found = ask(root, [Answer(429, headers={"Retry-After": "7"}), *GOOD])
    assert found.waits[:1] == pytest.approx([7], abs=0.2)


def test_an_endpoint_that_stays_down(root: Path, tmp_path: Path) -> None:
    """What was answered before is kept; no message holds the key."""
    found = ask(root, [GOOD[0], Answer(503, {"error": f"bad key {KEY}"})], cache=tmp_path / "cache")
    assert isinstance(found.error, InfrastructureError)
    assert "The judge first at http://127.0.0.1" in str(found.error)
    assert "(server, status 503)" in str(found.error)
    assert KEY not in str(found.error)
    assert len(found.requests) == 1 + ATTEMPTS
    assert len(list((tmp_path / "cache").glob("??/*.json"))) == 1


def test_a_refused_request_says_what_to_check(root: Path) -> None:
    found = ask(root, [Answer(400, {"error": {"message": "response_format is not supported"}})])
    assert isinstance(found.error, InfrastructureError)
    assert "Check its settings: model, how an answer is asked for, images" in str(found.error)
    assert len(found.requests) == 2  # the run's, and one that holds nothing


def test_a_refused_key_says_where_it_comes_from(root: Path) -> None:
    """Waiting for the endpoint would not help."""
    found = ask(root, [Answer(401, {"error": {"message": "invalid api key"}})])
    assert isinstance(found.error, InfrastructureError)
    assert "Check the key in JUDGE_KEY" in str(found.error)
    assert "when the endpoint works" not in str(found.error)
    assert len(str(found.error).splitlines()) <= 3


def test_a_slow_endpoint_is_given_up(root: Path) -> None:
    started = time.monotonic()
    found = ask(root, [Answer(body=completion(GOOD[0]), delay_s=30)], request_timeout_s=0.2)
    assert isinstance(found.error, InfrastructureError)
    assert "no answer" in str(found.error)
    assert time.monotonic() - started < 20


def test_usage_that_is_not_told_is_estimated(root: Path) -> None:
    found = ask(root, [spoken(text, usage=None) for text in GOOD])
    assert found.record is not None
    assert found.record.tokens.estimated
    assert found.record.tokens.prompt > 1000


def test_a_key_that_is_missing(root: Path) -> None:
    found = ask(root, GOOD, key="")
    assert isinstance(found.error, ConfigError)
    assert "judges.first: The environment variable JUDGE_KEY is not set" in str(found.error)
    assert found.requests == []


def test_the_key_stands_in_no_file(root: Path, tmp_path: Path) -> None:
    """Nor do the endpoint's errors bring it there."""
    found = ask(root, [Answer(503, {"error": KEY}), *GOOD], cache=tmp_path / "cache")
    assert found.record is not None, found.error
    write_record(tmp_path / "judge.json", found.record)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 4
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    "echo", [spoken(f"the key was {KEY}"), spoken("", refusal=f"no: {KEY}")], ids=["answer", "refusal"]
)
def test_an_endpoint_that_echoes_the_key(root: Path, tmp_path: Path, echo: Answer) -> None:
    """Neither in the message of the failure nor in the cache."""
    found = ask(root, [echo] * 12, cache=tmp_path / "cache")
    assert found.error is not None
    assert KEY not in str(found.error)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()] == []


# --- the picture ------------------------------------------------------------------------------------------------


def png(width: int = 60, height: int = 40, colour: str = "red", **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(stream, format="PNG", **options)
    return stream.getvalue()


def sent_picture(request: dict[str, Any]) -> bytes | None:
    content = request["messages"][1]["content"]
    if isinstance(content, str):
        return None
    (part,) = [part for part in content if part["type"] == "image_url"]
    head, data = part["image_url"]["url"].split(",")
    assert head == "data:image/png;base64"
    return base64.b64decode(data)


def test_the_picture_is_shown_with_the_plan_only(root: Path) -> None:
    found = ask(root, GOOD, plot=png(), images=True)
    assert found.record is not None, found.error
    assert [sent_picture(request) is not None for request in found.requests] == [True, False, False]
    assert found.record.judgements[0].saw_plot
    assert "is not shown to you" not in content_of(found.requests[0])


def test_a_judge_without_eyes_is_told(root: Path) -> None:
    found = ask(root, GOOD, plot=png(), images=False)
    assert found.record is not None, found.error
    assert sent_picture(found.requests[0]) is None
    assert not found.record.judgements[0].saw_plot
    assert "plan/plan.png is not shown to you" in content_of(found.requests[0])


PICTURES: list[tuple[str, bytes | None, tuple[int, int] | None]] = [
    ("none", None, None),
    ("empty", b"", None),
    ("text", b"plan", None),
    ("cut", png()[:60], None),
    ("jpeg", b"\xff\xd8\xff\xe0" + bytes(100), None),
    ("small", png(), (60, 40)),
    # The longest side becomes 1 280: 2560 × 1000 → 1280 × 500.
    ("wide", png(2560, 1000), (1280, 500)),
    ("40 million pixels and more", png(8000, 5001), None),
]


@pytest.mark.parametrize(("data", "size"), [row[1:] for row in PICTURES], ids=[row[0] for row in PICTURES])
def test_small_picture(data: bytes | None, size: tuple[int, int] | None) -> None:
    sent = small_picture(data)
    if sent is None:
        assert size is None
        return
    with Image.open(io.BytesIO(sent)) as image:
        assert image.size == size


def test_noise_is_made_smaller_until_it_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 280 × 960 pixels of noise have 3.7 MB; what is sent has less than one."""
    import numpy as np

    noise = np.random.default_rng(0).integers(0, 256, (960, 1280, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).save(stream, format="PNG")
    sent = small_picture(stream.getvalue())
    assert sent is not None
    assert len(sent) < 1_000_000 < len(stream.getvalue())


def submission(folder: Path, data: bytes | None, listed: bytes | None) -> Path:
    """A collected submission with a plan.png, and what its record says about it."""
    place = folder / "run/submission"
    (place / "plan").mkdir(parents=True)
    if data is not None:
        (place / "plan/plan.png").write_bytes(data)
    extra = {} if listed is None else {"plan/plan.png": FileEntry(sha256=sha256_bytes(listed), bytes=len(listed))}
    record = SubmissionRecord(
        run=conversation().run, track_version=1, cases=[], extra=extra, completion_rate=0, valid_rate=0
    )
    write_record(folder / "run/submission.json", record)
    return place


def test_the_collected_picture(tmp_path: Path) -> None:
    assert collected_plot(submission(tmp_path, png(), png())) == png()


def test_a_picture_that_was_not_collected(tmp_path: Path) -> None:
    """What lies there without being in the record was put there later."""
    assert collected_plot(submission(tmp_path, png(), None)) is None


@pytest.mark.parametrize("there", [None, png(colour="blue")], ids=["gone", "another"])
def test_a_picture_that_changed(there: bytes | None, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="is not what was collected"):
        collected_plot(submission(tmp_path, there, png()))


def test_a_picture_behind_a_link(tmp_path: Path) -> None:
    place = submission(tmp_path, None, png())
    (tmp_path / "secret.png").write_bytes(png())
    (place / "plan/plan.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(InfrastructureError):
        collected_plot(place)


# --- from files -------------------------------------------------------------------------------------------------


def test_files(root: Path, tmp_path: Path) -> None:
    """judge.json holds both the agent's run id and the judge's model; requests hold neither."""
    place = submission(tmp_path, png(), png())
    (tmp_path / "run/conversation.json").write_text(conversation().model_dump_json(by_alias=True))
    with ScriptedServer(answers=[spoken(text) for text in GOOD]) as server:
        judges = {"first": judge_model(base_url=server.url, images=True)}

        def opened(name: str, judge: JudgeModel, health: Path | None) -> JudgeEndpoint:
            return JudgeEndpoint(name, judge, health, environment={"JUDGE_KEY": KEY})

        with open_panel(judges, ["first"], cache=tmp_path / "cache", open_endpoint=opened) as panel:
            judge_conversation(
                tmp_path / "run/conversation.json",
                root / "config/rubrics",
                "detection",
                tmp_path / "run/judge.json",
                submission=place,
                panel=panel,
            )
        requests = server.requests
    record = read_record(tmp_path / "run/judge.json", JudgeRecord)
    assert (record.run.agent, record.judge, record.judgements[0].saw_plot) == ("hand-made", "panel:first", True)
    sent = json.dumps([request["messages"] for request in requests])
    for word in ("hand-made", str(tmp_path), "task_score", "medal", "overall"):
        assert word not in sent
