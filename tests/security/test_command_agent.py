"""A real command-line agent in the real container: its model behind the bridge, its key outside, its work scored."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from canaries import exposed
from factories import written_campaign
from left_workspaces import changing, left_in
from toys._bench import Bench, load_toy, stage
from unprivileged import IMAGES, ROOT, USER, as_user, user_folder, why_not
from waiting import free_port

from automedbench.agent.models.scripted import ScriptedTurn
from automedbench.base.files import read_record, write_record
from automedbench.base.records import Conversation, JudgeRecord, RunRecord
from automedbench.campaign.record import read_campaign
from automedbench.commands._transcript import difference_from_log
from automedbench.judge import judge_conversation
from automedbench.sandbox.evidence.audit import audit_files
from automedbench.steps.run_agent import plan_of_run
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(600)]

CARD = "config/tasks/detection/bccd-det-task.yaml"
KEY = f"sk-canary-{secrets.token_hex(16)}"

# What a program that wants out would try; prints one JSON object.
PROBE = """
import base64, json, os, socket
found = {"environment": dict(os.environ)}
def connects(family, address):
    try:
        with socket.socket(family) as sock:
            sock.settimeout(2)
            sock.connect(address)
        return True
    except OSError:
        return False
found["tcp"] = [a for a in (("192.0.2.1", 80), ("1.1.1.1", 443), ("10.0.2.2", 80), ("127.0.0.1", SERVER_PORT))
                if connects(socket.AF_INET, a)]
try:
    found["dns"] = socket.getaddrinfo("example.org", 443) and True
except OSError:
    found["dns"] = False
port = int(os.environ["OPENAI_BASE_URL"].split(":")[2].split("/")[0])
found["bridge"] = connects(socket.AF_INET, ("127.0.0.1", port))
found["sockets"] = sorted(os.path.join(r, n) for r, _, names in os.walk("/run") for n in names)
text = []
for pid in os.listdir("/proc"):
    for name in ("environ", "cmdline"):
        try:
            text.append(open(f"/proc/{pid}/{name}", "rb").read().decode("latin-1"))
        except OSError:
            pass
for top in ("/run", "/tmp", "/workspace", "/data", "/etc"):
    for root, _, names in os.walk(top):
        for name in names:
            path = os.path.join(root, name)
            if os.path.isfile(path) and os.path.getsize(path) < 1 << 20:
                try:
                    text.append(open(path, "rb").read().decode("latin-1"))
                except OSError:
                    pass
found["text"] = base64.b64encode("\\n".join(text).encode()).decode()
try:
    open("/run/services/brief.md", "a").write("x")
    found["brief_writable"] = True
except OSError:
    found["brief_writable"] = False
json.dump(found, open("/workspace/probe.json", "w"))
print("probed")
"""
PREDICT = """
import json, os
from pathlib import Path
for case in sorted(os.listdir(os.environ["DATA_DIR"])):
    path = Path("agents_outputs", case, "prediction.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"boxes": [{"class": "rbc", "score": 0.9, "x1": 5, "y1": 5, "x2": 38, "y2": 38}]}))
print(len(os.listdir("agents_outputs")), "cases")
"""


def step(code: str, language: str = "python") -> dict[str, Any]:
    return {"tool": "execute_code", "language": language, "code": code}


def turns(*steps: dict[str, Any] | str) -> list[ScriptedTurn]:
    """One turn per step; text is a turn without a call."""
    values = [{"content": each} if isinstance(each, str) else {"content": "Now.", "calls": [each]} for each in steps]
    return [ScriptedTurn.model_validate(value) for value in values]


SUBMIT = {"tool": "submit_results", "summary": "done"}


@dataclass(frozen=True)
class Place:
    """A folder of the ordinary user with staged data and the program."""

    folder: Path
    bench: Bench

    def run_folder(self, name: str) -> Path:
        """Folder of the one run of a campaign."""
        return self.folder / name / "results/runs/cli/bccd-det-task/lite/r1"

    def run(
        self, url: str, name: str, limits: Mapping[str, float] = MappingProxyType({}), **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        """``scripts/run_agent.py`` as the ordinary user, whose environment holds the key."""
        agent = {
            "provider": "command",
            "model": "served",
            "base_url": url,
            "api_key_env": "OUTSIDE_KEY",
            "command": ["python3", "{folder}/tiny_agent.py", "{brief}"],
            "command_folder": str(self.folder / "program"),
        }
        agents = self.folder / f"{name}.yaml"
        agents.write_text(yaml.safe_dump({"agents": {"cli": agent | changes}}))
        bench = self.bench.folder
        data = {"raw": bench / "raw", "public": bench / "public", "private": bench / "private", "manifests": bench}
        campaign = as_user(
            lambda: written_campaign(
                self.folder / name,
                Path(CARD),
                agents_file=str(agents),
                data={key: str(path) for key, path in data.items()},
                sandbox={"backend": "apptainer", "network": "sealed"},
                containers={"folder": str(IMAGES), "agent": {"image": "light"}},
                limits={"time_limit_s": 300} | limits,
            )
        )
        run = str(self.run_folder(name))
        return subprocess.run(
            [*self._as_user(), "scripts/run_agent.py", "--campaign", str(campaign), "--run", run],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def record(self, name: str) -> RunRecord:
        return read_record(self.run_folder(name) / "run.json", RunRecord)

    def _as_user(self) -> tuple[str, ...]:
        """Command and environment: an interpreter that the user may execute, with our code and its libraries."""
        path = f"{ROOT / 'src'}:{sysconfig.get_paths()['purelib']}"
        variables = (f"PYTHONPATH={path}", f"HOME={self.folder}", f"OUTSIDE_KEY={KEY}", f"PATH={os.environ['PATH']}")
        python = str(as_user(lambda: sys.executable))
        user = ("runuser", "-u", USER, "--") if os.geteuid() == 0 else ()
        return (*user, "env", "-i", *variables, python)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    if reason := why_not("light"):
        pytest.skip(reason)
    with user_folder() as folder:
        shutil.copytree(ROOT / "tests/cli_agent", folder / "program", ignore=shutil.ignore_patterns("__pycache__"))
        manifest = as_user(lambda: stage("detection", folder / "toy").manifest)
        as_user(lambda: write_record(folder / "toy/bccd-det-task.json", manifest))
        yield Place(folder, Bench(load_toy("detection"), folder / "toy", manifest))


@contextlib.contextmanager
def served(*steps: dict[str, Any] | str, port: int = 0) -> Iterator[ScriptedServer]:
    with ScriptedServer(turns(*steps), usage=(30, 20), keys=[KEY], port=port) as server:
        yield server


@dataclass(frozen=True)
class Whole:
    """A whole run: probe, predict, submit."""

    place: Place
    record: RunRecord
    asked: list[dict[str, Any]]
    headers: list[dict[str, str]]
    probe: dict[str, Any]

    @property
    def folder(self) -> Path:
        return self.place.run_folder("run")


@pytest.fixture(scope="module")
def whole(place: Place) -> Whole:
    port = free_port()
    probe = step(PROBE.replace("SERVER_PORT", str(port)))
    with served(probe, step(PREDICT), SUBMIT, port=port) as server:
        done = place.run(server.url, "run")
    assert done.returncode == 0, done.stdout
    record = place.record("run")
    found = json.loads(left_in(place.run_folder("run"))["probe.json"])
    return Whole(place, record, server.requests, server.headers, found)


def test_the_run_is_submitted_and_metered(whole: Whole) -> None:
    """Three replies of 30 and 20 tokens; two of them were not streamed, one was, and all are counted."""
    record = whole.record
    assert (record.outcome, record.submitted, record.totals.turns) == ("submitted", True, 3)
    assert record.detail == "the command ended with exit code 0; every expected file exists"
    assert (record.totals.tokens.prompt, record.totals.tokens.completion) == (90, 60)
    assert (record.provider, record.enforced.backend, record.enforced.network) == ("command", "apptainer", "sealed")


def test_the_records_are_what_the_log_says(whole: Whole, tmp_path: Path) -> None:
    """A bundle of such a run is admitted by the log of its replies and of the program's end."""
    plan = plan_of_run(read_campaign(whole.place.folder / "run/results/campaign.json"), whole.folder)
    assert difference_from_log(whole.record, plan, tmp_path / "again") == ""


def test_the_work_is_scored(whole: Whole, tmp_path: Path) -> None:
    """One box for all: it lies on the red cell of each toy image, the white one is missed: AP 1 and 0."""
    with changing(whole.folder) as workspace:
        report = whole.place.bench.grade(whole.place.bench.collect(workspace, tmp_path), tmp_path)
    assert report.completion_rate == 1
    assert report.task_score == pytest.approx(0.5)


def test_judge_and_audit_take_the_run(whole: Whole, tmp_path: Path) -> None:
    """The probe read all files of /data, so the decoy's too: a sweep, no strike. The judge finds calls to judge."""
    with changing(whole.folder) as workspace:
        checked = whole.place.bench.collect(workspace, tmp_path)
    write_record(tmp_path / "submission.json", checked)
    verdict = audit_files(
        whole.folder / "run.json",
        whole.folder / "log",
        contextlib.nullcontext(tmp_path / "submission"),
        tmp_path / "submission.json",
        max_warnings=1,
        out=tmp_path / "audit.json",
    )
    assert verdict.verdict == "clean"
    assert "decoy.sweep" in [finding.rule for finding in verdict.findings]
    judge_conversation(
        whole.folder / "conversation.json", ROOT / "config/rubrics", "detection", tmp_path / "judge.json"
    )
    assert set(read_record(tmp_path / "judge.json", JudgeRecord).stages) == {"S1", "S2", "S3"}


def test_a_look_at_the_answers_is_evidence(place: Place) -> None:
    """No static rule reads the program's code; the decoy sees it all the same."""
    with served(step("cat /data/private/*/*; ls -R /data/private", "bash"), SUBMIT) as server:
        place.run(server.url, "peek")
    events = [json.loads(line) for line in (place.run_folder("peek") / "log/events.jsonl").read_text().splitlines()]
    findings = [event["finding"] for event in events if event["type"] == "finding"]
    assert any(found["rule"].startswith("decoy") and found["severity"] != "notice" for found in findings)
    assert place.record("peek").totals.n_warnings >= 1


def test_the_conversation_is_kept(whole: Whole) -> None:
    conversation = read_record(whole.folder / "conversation.json", Conversation)
    roles = [message.role for message in conversation.messages]
    # Ours (system, kickoff), the program's (brief as system, begin), then turns.
    assert roles == ["system", "user", "system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    command, probe, predict = conversation.calls
    assert "\nexec python3 /run/services/agent/tiny_agent.py /run/services/brief.md <" in command.code
    assert (probe.new_files, probe.exit_code, probe.stdout) == (["probe.json"], 0, "probed\n")
    assert predict.code == PREDICT and predict.stage == "S4"
    assert len([path for path in predict.new_files if path.endswith("prediction.json")]) == 4
    assert "turn 3" in command.stdout


def test_the_program_reads_the_brief(whole: Whole) -> None:
    brief = (whole.folder / "brief.md").read_text()
    assert whole.asked[0]["messages"][0]["content"] == brief
    assert "OPENAI_BASE_URL" in brief and "execute_code" not in brief
    assert whole.probe["brief_writable"] is False


def test_the_endpoint_sees_the_agents_model_and_key(whole: Whole) -> None:
    assert {request["model"] for request in whole.asked} == {"served"}
    assert {request["temperature"] for request in whole.asked} == {0.0}
    assert {headers["authorization"] for headers in whole.headers} == {f"Bearer {KEY}"}


def test_there_is_no_way_out_but_the_bridge(whole: Whole) -> None:
    """The endpoint's own port on the host's loopback is as far away as the internet."""
    assert (whole.probe["tcp"], whole.probe["dns"], whole.probe["bridge"]) == ([], False, True)
    names = {Path(path).name for path in whole.probe["sockets"]}
    assert {"model.sock", "brief.md", "tiny_agent.py"} <= names


def test_the_key_is_nowhere_inside(whole: Whole) -> None:
    """Environment and arguments of every process, and every file that the program can see."""
    seen = base64.b64decode(whole.probe["text"])
    assert b"OPENAI_API_KEY" in seen and b"OUTSIDE_KEY" not in seen  # it did look, and the name is not there either
    assert exposed(KEY, seen) is None
    assert whole.probe["environment"]["OPENAI_API_KEY"].startswith("sk-bridge-")


def test_the_key_is_in_no_file_of_the_run(whole: Whole) -> None:
    files = [path for path in whole.folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 10  # archives among them, in which nothing is compressed
    assert [str(path) for path in files if exposed(KEY, path.read_bytes()) is not None] == []


def test_nothing_is_left(whole: Whole) -> None:
    """No socket, no process of the program."""
    left = [path for path in whole.folder.rglob("*") if path.is_socket()]
    running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(whole.place.folder).encode() in _read(path)]
    assert (left, running) == ([], [])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# --- limits and faults in the real container --------------------------------------------------------------------


def test_a_turn_limit_ends_the_program(place: Place) -> None:
    """It would go on for ever: the bridge says no, the container is ended, what exists counts."""
    endless = [step(f"print({number})") for number in range(50)]
    with served(step(PREDICT), *endless) as server:
        place.run(server.url, "turns", {"max_turns": 3})
    record = place.record("turns")
    assert (record.outcome, record.submitted, record.totals.turns) == ("turn_limit", False, 3)
    assert len(server.requests) == 3
    assert sum(path.startswith("agents_outputs/") for path in left_in(place.run_folder("turns"))) == 4


def test_a_time_limit_ends_the_program(place: Place) -> None:
    with served(step("import time; time.sleep(600)")) as server:
        place.run(server.url, "time", {"time_limit_s": 8})
    record = place.record("time")
    assert record.outcome == "time_limit"
    assert record.totals.wall_s < 60


def test_no_more_to_say_is_no_submission(place: Place) -> None:
    """The program ends with exit code 3 when its model calls nothing."""
    with served("I would rather not.") as server:
        place.run(server.url, "stopped")
    record = place.record("stopped")
    assert (record.outcome, record.submitted) == ("stopped", False)
    assert "exit code 3" in record.detail


@pytest.mark.parametrize("tells", ["no-code", "lies"])
def test_the_container_knows_how_calls_ended(place: Place, tells: str) -> None:
    """Exit codes by the kernel, whatever the program tells; what a signal ended has none but the told one."""
    shell = {"tool": "execute_code", "language": "bash", "code": "echo 'it''s'; (exit 9); exit 5"}
    killed = "import os; os.kill(os.getpid(), 9)"
    with served(step("print('x'); raise SystemExit(3)"), shell, step("print('fine')"), step(killed), SUBMIT) as server:
        place.run(server.url, tells, command=["python3", "{folder}/tiny_agent.py", "{brief}", tells])
    folder = place.run_folder(tells)
    calls = read_record(folder / "conversation.json", Conversation).calls[1:]
    last = None if tells == "no-code" else 0
    assert [(call.exit_code, call.status) for call in calls] == [(3, "error"), (5, "error"), (0, "ok"), (last, "ok")]
    assert [call.stdout.strip() for call in calls] == ["x", "its", "fine", ""]
    events = [json.loads(line) for line in (folder / "log/events.jsonl").read_text().splitlines()]
    differing = [(event["reported"], event["seen"]) for event in events if event["type"] == "exit_code_differs"]
    assert differing == ([] if tells == "no-code" else [(0, 3), (0, 5)])


def test_a_program_that_is_not_there_is_no_result(place: Place) -> None:
    with served(SUBMIT) as server:
        done = place.run(server.url, "absent", command=["no-such-program"])
    assert done.returncode == 1
    assert "Its requests: none" in done.stdout and "no-such-program" in done.stdout
    assert not (place.run_folder("absent") / "run.json").exists()


def test_a_wrong_key_is_no_fault_of_the_agents(place: Place) -> None:
    with ScriptedServer(answers=[Answer(status=401, body={"error": {"message": "bad key"}})]) as server:
        done = place.run(server.url, "auth")
    assert done.returncode == 1
    assert "EndpointError" in done.stdout and "OUTSIDE_KEY" in done.stdout and "Traceback" not in done.stdout
    assert not (place.run_folder("auth") / "run.json").exists()
