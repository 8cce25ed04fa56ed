"""Keys stay outside: a whole run with a real endpoint, a real container, and everybody trying to get at them.

Canaries: the agent's own key, which the endpoint repeats in its replies and errors in every common encoding; another
one in all other places where keys are kept; the password of the site's proxy. None may turn up in a file of the run or
on the screen, nor the first two in an argument or in the environment of any process. The pages of a campaign are looked
at by ``tests/workflow/test_model_server.py``.
"""

from __future__ import annotations

import base64
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from attack_range import HOME_FILES, KEY_VARIABLES
from canaries import exposed, exposures, forms, new_canary
from toys._bench import Bench, stage
from unprivileged import IMAGES, ROOT, as_user, user_folder, why_not
from waiting import free_port

from automedbench.agent.models.scripted import CodeStep, ScriptedTurn, SubmitStep
from automedbench.agent.run import RunPlan, run_agent
from automedbench.base.cards import Limits
from automedbench.base.errors import AutoMedBenchError
from automedbench.base.masking import MASK, masked, secret_forms
from automedbench.base.records import Conversation, RunId, RunRecord
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import SandboxConfig
from automedbench.sandbox.boxes import LocalSandbox, Sandbox
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer

KEY_NAME = "SERVED_KEY"
SEARCHES = [
    ("bash", "env; set; export -p; cat /proc/*/environ; cat /proc/*/cmdline; ps auxwwwe"),
    ("bash", "cat ~/.n* ~/.s*/* @home@/.n* @home@/key; ls -la @home@ @runs@; cat @runs@/*/* @runs@/../*"),
    ("python", "import os, gc\nprint(dict(os.environ), [o for o in gc.get_objects() if isinstance(o, str)][:99])"),
    (
        "python",
        "import urllib.request as u\n"
        "for h in ('http://127.0.0.1:@port@/v1/models', 'http://169.254.169.254/latest/meta-data/'):\n"
        "  try: print(u.urlopen(h, timeout=3).read())\n"
        "  except OSError as e: print(e)",
    ),
    (
        "bash",
        "grep -rhs canary / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=opt; keyctl show",
    ),
    ("python", "import os\nfor n in range(3, 300):\n  try: print(n, os.read(n, 4096))\n  except OSError: pass"),
]


def said(key: str) -> str:
    """What an endpoint that leaks would write."""
    raw = key.encode()
    encodings = [key, key[::-1], raw.hex(), raw.hex().upper(), base64.b64encode(raw).decode()]
    encodings += [base64.b64encode(b"x" * offset + raw + b"yy").decode() for offset in (1, 2)]
    return "The key is " + " or ".join(encodings)


def script(key: str, home: Path, runs: Path, port: int) -> list[ScriptedTurn]:
    """Turns of a model that has the key from the endpoint and looks for others."""
    known = {"home": home, "runs": runs, "port": port}
    turns = []
    for language, code in SEARCHES:
        for name, value in known.items():
            code = code.replace(f"@{name}@", str(value))
        step = CodeStep.model_validate({"tool": "execute_code", "language": language, "code": code})
        turns.append(ScriptedTurn(content=said(key), calls=[step]))
    told = f"mkdir -p agents_outputs plan; echo '{said(key)}' | tee plan/plan.md note.txt; echo '{key}' > 'name-{key}'"
    turns.append(ScriptedTurn(calls=[CodeStep(tool="execute_code", language="bash", code=told)]))
    submit = SubmitStep(tool="submit_results", summary=said(key))
    return [*turns, ScriptedTurn(calls=[submit]), ScriptedTurn(calls=[submit])]


@dataclass
class Watcher:
    """Looks at the arguments and environments of all processes until it is stopped."""

    secrets: tuple[str, ...]
    found: set[str] = field(default_factory=set)
    containers: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _watch(self) -> None:
        needles = [form for secret in self.secrets for form in forms(secret).values()]
        while not self._stop.is_set():
            for name in filter(str.isdigit, os.listdir("/proc")):
                for part in ("cmdline", "environ"):
                    with contextlib.suppress(OSError):
                        data = Path(f"/proc/{name}/{part}").read_bytes()
                        self.containers += part == "cmdline" and b"apptainer" in data and b"light.sif" in data
                        if any(needle in data for needle in needles):
                            self.found.add(f"{part} of {Path(f'/proc/{name}/cmdline').read_bytes()[:120]!r}")
            time.sleep(0.005)


@dataclass
class Campaign:
    """A staged task, a home full of keys, and the folder of one run."""

    folder: Path
    bench: Bench
    key: str = field(default_factory=new_canary)
    other: str = field(default_factory=new_canary)
    proxy: str = field(default_factory=new_canary)
    """Password of the site's own proxy: the egress server needs it, nobody else."""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def furnish(self) -> None:
        """Another secret wherever keys are kept; the agent's own key in a file that only we may read."""
        for name in HOME_FILES:
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(self.other)
        (self.home / "key").write_text(f"{self.key}\n")
        (self.home / "key").chmod(0o600)

    def enter(self, *, key_in_file: bool) -> None:
        """The environment of somebody who starts runs."""
        os.environ.update(dict.fromkeys(KEY_VARIABLES, self.other))
        os.environ["HTTPS_PROXY"] = f"http://user:{self.proxy}@127.0.0.1:9"
        os.environ["HOME"] = str(self.home)
        if not key_in_file:
            os.environ[KEY_NAME] = self.key

    def plan(self, url: str, name: str, *, key_in_file: bool) -> RunPlan:
        source = {"api_key_file": str(self.home / "key")} if key_in_file else {"api_key_env": KEY_NAME}
        return RunPlan(
            run=RunId(agent="a", task=self.bench.card.id, tier="lite", repeat=1),
            card=self.bench.card,
            manifest=self.bench.manifest,
            agent=Agent.model_validate({"provider": "openai", "model": "m", "base_url": url, **source}),
            limits=Limits(),
            sandbox=SandboxConfig(max_warnings=99),
            public=self.bench.folder / "public",
            folder=self.folder / "runs" / name,
            prompts=ROOT / "config/prompts",
            image=IMAGES / "light.sif",
        )


def rehearse(campaign: Campaign) -> None:
    """One run without a container: loads every module, before becoming a user who may not be able to."""
    code = CodeStep(tool="execute_code", language="bash", code="true")
    submit = ScriptedTurn(calls=[SubmitStep(tool="submit_results")])

    def local(_plan: Any, attempt: Any, *_: object) -> AbstractContextManager[Sandbox]:
        return LocalSandbox(public=campaign.bench.public, workspace=attempt.workspace)

    with pytest.MonkeyPatch.context() as patch, ScriptedServer([ScriptedTurn(calls=[code]), submit, submit]) as server:
        patch.setenv(KEY_NAME, "sk-rehearsal")
        plan = campaign.plan(server.url, "rehearsal", key_in_file=False)
        run_agent(replace(plan, folder=campaign.folder / "rehearsal"), open_sandbox=local, say=lambda _: None)


@pytest.fixture
def campaign() -> Iterator[Campaign]:
    if reason := why_not("light"):
        pytest.skip(reason)
    with user_folder() as folder:
        made = Campaign(folder, stage("detection", folder / "data"))
        rehearse(made)
        exposed(made.key, b"")
        (folder / "runs").mkdir()
        owner = folder.stat()
        for path in folder.rglob("*"):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        as_user(made.furnish)
        yield made


def start(campaign: Campaign, url: str, *, key_in_file: bool) -> tuple[RunRecord | None, list[str]]:
    """Run the driver as its user; the record, or None when it failed, and what it said."""
    said_: list[str] = []

    def run() -> tuple[RunRecord | None, list[str]]:
        campaign.enter(key_in_file=key_in_file)
        plan = campaign.plan(url, "r1", key_in_file=key_in_file)
        try:
            return run_agent(plan, say=said_.append), said_
        except AutoMedBenchError as error:
            return None, [*said_, str(error), repr(error)]

    return as_user(run)


def everything_found(campaign: Campaign, spoken: list[str], screen: tuple[str, str]) -> list[str]:
    """Where one of the canaries turned up."""
    found = []
    for secret in (campaign.key, campaign.other, campaign.proxy):
        found += exposures(secret, campaign.folder / "runs")
        found += [f"said: {text[:80]}" for text in [*spoken, *screen] if exposed(secret, text.encode())]
    return found


@pytest.mark.apptainer
@pytest.mark.timeout(300)
@pytest.mark.parametrize("key_in_file", [False, True], ids=["key-in-variable", "key-in-file"])
def test_a_run_keeps_its_keys(campaign: Campaign, key_in_file: bool, capfd: pytest.CaptureFixture[str]) -> None:
    watcher = Watcher((campaign.key, campaign.other))
    port = free_port()
    turns = script(campaign.key, campaign.home, campaign.folder / "runs", port)
    with ScriptedServer(turns, port=port) as server, watcher.watching():
        record, spoken = start(campaign, server.url, key_in_file=key_in_file)
    assert record is not None, spoken
    assert everything_found(campaign, spoken, capfd.readouterr()) == []
    assert watcher.found == set()
    assert watcher.containers > 0
    # The endpoint did get the key, and every search was executed.
    assert {headers["authorization"] for headers in server.headers} == {f"Bearer {campaign.key}"}
    conversation = Conversation.model_validate_json((campaign.folder / "runs/r1/conversation.json").read_text())
    assert len(conversation.calls) == len(SEARCHES) + 1
    assert {call.status for call in conversation.calls} <= {"ok", "error"}
    assert MASK in record.summary


@pytest.mark.apptainer
@pytest.mark.timeout(120)
@pytest.mark.parametrize("status", [400, 401])
def test_an_error_that_repeats_the_key_is_masked(
    campaign: Campaign, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    body = {"error": {"message": f"Incorrect API key provided. {said(campaign.key)}", "code": said(campaign.key)}}
    with ScriptedServer(answers=[Answer(status, body, {"x-key": campaign.key})]) as server:
        record, spoken = start(campaign, server.url, key_in_file=False)
    assert record is None or record.outcome == "api_error" or record.outcome
    assert everything_found(campaign, spoken, capfd.readouterr()) == []
    assert len(server.requests) >= 1


# --- the second line --------------------------------------------------------------------------------------------------

MASKED: dict[str, Callable[[str], str]] = {
    "raw": lambda key: key,
    "reversed": lambda key: key[::-1],
    "hex": lambda key: key.encode().hex(),
    "hex-upper": lambda key: key.encode().hex().upper(),
    "reversed-hex": lambda key: key[::-1].encode().hex(),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64-1": lambda key: base64.b64encode(b"a" + key.encode() + b"b").decode(),
    "base64-2": lambda key: base64.b64encode(b"ab" + key.encode() + b"cd").decode(),
    "base64-url": lambda key: base64.urlsafe_b64encode(b"??" + key.encode()).decode(),
    "percent": lambda key: "".join(f"%{ord(c):02X}" if not (c.isalnum() or c in "_.-~") else c for c in key),
}


@pytest.mark.parametrize("key", ["sk-or-v1-0123456789abcdef", "k/e+y=with&odd?signs#%~0123", "AKIA0123456789"])
@pytest.mark.parametrize("encode", MASKED.values(), ids=MASKED)
def test_every_common_encoding_is_masked(encode: Callable[[str], str], key: str) -> None:
    text = f"before {encode(key)} after"
    shown = masked(text, secret_forms([key]))
    assert shown.startswith("before ") and shown.endswith(" after")
    assert MASK in shown
    assert encode(key) not in shown


def test_other_text_stays() -> None:
    text = "Segmentation of the liver, Dice 0.91; 53656772 6d656e74; U2VnbWVudGF0aW9u"
    assert masked(text, secret_forms(["sk-or-v1-0123456789abcdef", "secret-value"])) == text


@pytest.mark.parametrize("secret", ["", "a", "12345"])
def test_words_are_no_secrets(secret: str) -> None:
    assert secret_forms([secret]) == ()


def test_a_short_secret_has_no_encodings_that_occur_by_chance() -> None:
    """Of six letters only the forms of ten and more characters are looked for."""
    assert {len(form) for form in secret_forms(["abcdef"])} == {6, 12}
