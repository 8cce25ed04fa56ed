"""The doctor: every probe finds what is wrong, says what to do, takes its time only, and prints no key."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from unprivileged import IMAGES, as_user, user_folder, why_not

from automedbench.agent.models.scripted import ScriptedTurn
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import write_record
from automedbench.base.records import CaseEntry, FileEntry, Manifest
from automedbench.commands._machine import containers, host, inputs, local
from automedbench.commands._machine.examine import Host, HostProbe, ProbeResult, examine, fail, ok, report_lines, warn
from automedbench.commands._machine.first import jobs, models, trial
from automedbench.commands._machine.first.inside import kernel
from automedbench.commands._machine.host import file_system
from automedbench.commands._machine.table import PROBES
from automedbench.planning.load import plan
from automedbench.sandbox.container.gpus import Card
from automedbench.sandbox.container.image import ImageRecord
from automedbench.sandbox.container.process import CodeResult
from automedbench_rehearsal.model_server.http import Answer, HttpServer
from automedbench_rehearsal.model_server.server import ScriptedServer

ROOT = Path(__file__).resolve().parents[2]
CARD: dict[str, Any] = yaml.safe_load((ROOT / "config/tasks/detection/bccd-det-task.yaml").read_text())
TASK = "bccd-det-task"
KEY = "sk-canary-0123456789abcdef"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cards").mkdir()
    (tmp_path / f"cards/{TASK}.yaml").write_text(yaml.safe_dump(CARD))
    (tmp_path / "envs").symlink_to(ROOT / "envs")
    return tmp_path


def agent_at(url: str, **changes: Any) -> dict[str, Any]:
    return {"provider": "openai", "model": "m", "base_url": url, "api_key_env": "DOCTOR_KEY"} | changes


def config_of(place: Path, agent: dict[str, Any], **changes: Any) -> dict[str, Any]:
    (place / "agents.yaml").write_text(yaml.safe_dump({"agents": {"one": agent}}))
    return {
        "agents_file": "agents.yaml",
        "cards": ["cards"],
        "matrix": {"agents": ["one"], "tasks": [TASK], "tiers": ["lite"], "repeats": 1},
        "data": {name: f"data/{name}" for name in ("raw", "public", "private", "manifests")},
        **changes,
    }


def host_of(place: Path, agent: dict[str, Any] | None = None, **changes: Any) -> Host:
    agent = agent or agent_at("http://127.0.0.1:9/v1")
    return Host(plan(config_of(place, agent, **changes), []), IMAGES, place)


def statuses(findings: list[ProbeResult]) -> list[str]:
    return [finding.status for finding in findings]


def only(findings: Iterator[ProbeResult] | Any) -> ProbeResult:
    """The one finding that there is."""
    (finding,) = list(findings)
    return finding


# --- the frame ------------------------------------------------------------------------------------------------


def test_probes_do_not_stop_one_another(place: Path) -> None:
    """One hangs, one breaks, one raises what a user should read; the others are reported in their order."""
    released = threading.Event()

    def hangs(_host: Host) -> Iterator[ProbeResult]:
        yield ok("hangs", "first part")
        released.wait(30)

    def breaks(_host: Host) -> Iterator[ProbeResult]:
        raise ZeroDivisionError("by zero")

    def unusable(_host: Host) -> Iterator[ProbeResult]:
        raise local.InfrastructureError("The disk is gone.\nPut it back.")

    probes = [HostProbe("hangs", hangs, 0.2), HostProbe("breaks", breaks), HostProbe("unusable", unusable)]
    started = time.monotonic()
    found = examine(Host(None, place), [*probes, HostProbe("fine", lambda _host: [ok("fine", "yes")])])
    released.set()
    assert time.monotonic() - started < 20
    assert [(finding.probe, finding.status, finding.message) for finding in found] == [
        ("hangs", "ok", "first part"),
        ("hangs", "warn", "no answer within 0 s"),
        ("breaks", "warn", "the probe broke (ZeroDivisionError: by zero)"),
        ("unusable", "FAIL", "The disk is gone."),
        ("fine", "ok", "yes"),
    ]
    assert found[3].fix == "Put it back."


def test_values_of_secrets_are_masked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANY_API_KEY", KEY)
    (found,) = examine(
        Host(None, place), [HostProbe("p", lambda _host: [warn("p", f"says {KEY}", f"do not print {KEY}")])]
    )
    assert (found.message, found.fix) == ("says [masked]", "do not print [masked]")


def test_report() -> None:
    findings = [ok("a", "fine"), warn("longer", "so so", "do this"), fail("c", "bad\x1b[31m", "do that")]
    assert report_lines(findings) == [
        "ok    a       fine",
        "warn  longer  so so → do this",
        "FAIL  c       bad [31m → do that",
        "1 ok, 1 warning, 1 failure",
    ]
    assert report_lines(findings, coloured=True)[0] == "\x1b[32mok  \x1b[0m  a       fine"


def test_every_probe_answers_here(place: Path) -> None:
    """On whatever machine tests run, each ends within its limit and no probe is broken."""
    found = examine(Host(None, place / "images", ROOT), [probe for probe in PROBES if probe.doctor])
    assert [finding for finding in found if "the probe broke" in finding.message] == []
    assert {finding.probe for finding in found} >= {"python", "clock", "limits", "memory", "leases", "results", "gpu"}
    assert all(finding.fix for finding in found if finding.status != "ok")


# --- the machine ----------------------------------------------------------------------------------------------


def test_packages_are_compared_with_pins(place: Path) -> None:
    assert only(local.python(Host(None, place, ROOT))).status in ("ok", "warn")
    (place / "envs").unlink()
    (place / "envs").mkdir()
    (place / "envs/host.txt").write_text("pydantic==0.1\nno-such-package-here==1.0\n")
    found = only(local.python(Host(None, place, place)))
    assert (found.status, "pydantic 0.1, no-such-package-here 1.0" in found.message) == ("warn", True)


def test_limits(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "WANTED", {"files": (lambda: 10, 10), "bytes": (lambda: 1000, 2000)})
    (found,) = local.limits(Host(None, place))
    assert (found.status, found.message) == ("warn", "lower than wanted: bytes 1,000 (wanted: 2,000)")


@pytest.mark.parametrize(("left", "needed", "status"), [(0, 0, "FAIL"), (100, 101, "warn"), (100, 100, "ok")])
def test_files_against_inodes(left: int, needed: int, status: str) -> None:
    assert local._files("n are left", left, needed).status == status


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/export /home nfs4 rw,vers=4.2 0 0
tmpfs /home/me/fast tmpfs rw 0 0
server:/a\\040b /with\\040blank nfs rw 0 0
short
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        pytest.param("/usr/lib", "ext4", id="root"),
        pytest.param("/home/you", "nfs4", id="network"),
        pytest.param("/homes", "ext4", id="a longer name is another folder"),
        pytest.param("/home/me/fast/x", "tmpfs", id="the innermost counts"),
        pytest.param("/with blank/x", "nfs", id="escaped blank (fstab(5))"),
    ],
)
def test_kind_of_file_system(tmp_path: Path, path: str, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.replace("short\n", ""))
    assert file_system(Path(path), mounts) == kind


def test_network_file_systems_are_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "file_system", lambda _path: "nfs4")
    found = {(finding.probe, finding.status) for finding in local.disks(Host(None, place))}
    assert {("temporary files", "warn"), ("leases", "warn")} <= found


def test_a_real_lease_is_tried_and_nothing_stays(place: Path) -> None:
    assert ("leases", "ok") in {(finding.probe, finding.status) for finding in local.disks(Host(None, place))}
    assert not (place / "results").exists()
    assert list(place.glob(".doctor-*")) == []


def test_results_that_cannot_be_written() -> None:
    """/proc takes no file of anybody."""
    found = list(local._leases(Path("/proc/self"), "proc"))
    assert statuses(found) == ["FAIL"]


def test_results_below_a_folder_of_others(place: Path) -> None:
    """One failure with its remedy, where this user cannot even look."""
    probes = [probe for probe in PROBES if probe.name in ("clock", "disks", "files", "data")]
    with user_folder() as folder:
        closed = folder / "closed"
        closed.mkdir(mode=0)
        here = host_of(place, results=str(closed / "mine/results"))
        found = as_user(lambda: examine(here, probes))
        closed.chmod(0o700)
    wrong = [each for each in found if each.status == "FAIL" or "broke" in each.message]
    assert [(each.probe, each.fix) for each in wrong] == [("results", "Set results to a folder that it can write.")]


# --- containers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "filtered", "expected"),
    [
        ("FOUND[]", True, ["ok", "ok"]),
        ('FOUND["/srv/private"]', True, ["FAIL", "ok"]),
        ("FOUND[]", False, ["ok", "warn"]),
        ("", True, ["FAIL"]),
    ],
)
def test_what_a_container_must_not_be(
    place: Path, monkeypatch: pytest.MonkeyPatch, printed: str, filtered: bool, expected: list[str]
) -> None:
    """What the sandbox's own probe refuses is in test_selfcheck.py."""
    done = CodeResult(status="ok", exit_code=0, stdout=printed, stderr="", elapsed_s=1.0)
    inside = containers.Inside(done, SimpleNamespace(seccomp=filtered), [])  # type: ignore[arg-type]
    monkeypatch.setattr(containers, "run_inside", lambda *_: inside)
    monkeypatch.setattr(containers.shutil, "which", lambda _: "/usr/bin/apptainer")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (place / "light.sif").touch()
    assert statuses(list(containers.isolation(Host(None, place)))) == expected


@pytest.fixture
def real_containers() -> None:
    if reason := why_not("light"):
        pytest.skip(reason)


def look_at_isolation() -> list[tuple[str, str, str]]:
    """The probe as an ordinary user sees it, from a folder that is the user's."""
    with user_folder() as folder:

        def look() -> list[tuple[str, str, str]]:
            os.chdir(folder)
            return [
                (finding.probe, finding.status, finding.message)
                for finding in containers.isolation(Host(None, IMAGES, folder))
            ]

        return as_user(look)


@pytest.mark.apptainer
@pytest.mark.usefixtures("real_containers")
def test_isolation_for_an_ordinary_user() -> None:
    assert [(probe, status) for probe, status, _ in look_at_isolation()] == [("isolation", "ok"), ("seccomp", "ok")]


@pytest.mark.apptainer
@pytest.mark.usefixtures("real_containers")
def test_root_is_told_to_be_an_ordinary_user(place: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("this is no root")
    found = examine(Host(None, IMAGES, place), [HostProbe("isolation", containers.isolation, 45)])
    assert any(finding.fix == containers.AS_ROOT for finding in found)


def test_a_record_that_tells_of_another_image(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was copied over the image of before: briefs would promise what is not there."""
    facts = {"flavour": "light", "recipe": "x", "base": "b", "system": "s", "cuda": None, "packages": {}, "tools": []}
    told = ImageRecord.model_validate({**facts, "python": "3.11", "named": []})
    (place / "light.sif").write_bytes(b"image")
    write_record(place / "light.json", told)
    host = Host(None, place)
    monkeypatch.setattr(Host, "image_names", ("light",))
    monkeypatch.setattr(containers.shutil, "which", lambda _: "/usr/bin/apptainer")
    for inside, expected in ((told, "ok"), (None, "ok"), (told.model_copy(update={"python": "3.13"}), "FAIL")):
        monkeypatch.setattr(containers, "image_record", lambda _, inside=inside: inside)
        assert statuses(list(containers.images(host))) == [expected]


def test_without_images(place: Path) -> None:
    assert statuses(list(containers.images(Host(None, place)))) == ["warn", "warn"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        pytest.param("apptainer version 1.4.5-2", "ok", id="new"),
        pytest.param("apptainer version 1.1.9", "FAIL", id="too old"),
        pytest.param("apptainer version 2.0", "ok", id="next major"),
        pytest.param("Segmentation fault", "FAIL", id="broken"),
    ],
)
def test_version_of_apptainer(place: Path, monkeypatch: pytest.MonkeyPatch, answer: str, status: str) -> None:
    program(place, monkeypatch, "apptainer", f"echo '{answer}'")
    assert only(containers.apptainer(Host(None, place))).status == status


def test_no_apptainer(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place))
    assert only(containers.apptainer(Host(None, place))).status == "FAIL"


def program(place: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """A program of that name, first on PATH."""
    path = place / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


# --- keys and endpoints ---------------------------------------------------------------------------------------


def test_keys(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCTOR_KEY", raising=False)
    missing = only(inputs.keys(host_of(place)))
    assert (missing.status, "DOCTOR_KEY" in missing.message) == ("FAIL", True)
    monkeypatch.setenv("DOCTOR_KEY", KEY)
    there = only(inputs.keys(host_of(place)))
    assert there.status == "ok"
    assert KEY not in there.message


def test_keys_of_scripts_are_not_asked_for(place: Path) -> None:
    assert list(inputs.keys(host_of(place, {"provider": "scripted", "script": "x.yaml"}))) == []


def test_judges_are_asked_like_agents(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A panel of two: one with a key that its endpoint takes, one whose variable is not set."""
    monkeypatch.setenv("JUDGE_KEY", KEY)
    monkeypatch.delenv("OTHER_KEY", raising=False)
    with ScriptedServer({"j": [ScriptedTurn(content="done")]}, keys=[KEY]) as server:
        members = {
            name: {"model": "j", "base_url": server.url, "api_key_env": key}
            for name, key in (("one", "JUDGE_KEY"), ("two", "OTHER_KEY"))
        }
        (place / "judges.yaml").write_text(json.dumps({"judges": members}))
        host = host_of(
            place,
            {"provider": "scripted", "script": "x.yaml"},
            judges_file=str(place / "judges.yaml"),
            judge={"kind": "llm", "panel": ["one", "two"]},
        )
        assert [(finding.status, finding.message.partition(":")[0]) for finding in inputs.keys(host)] == [
            ("ok", "judge one"),
            ("FAIL", "judge two"),
        ]
        assert only(models.endpoints(host)).status == "ok"


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server on loopback that answers every GET alike; its URL, and paths and authorisations of requests."""
    seen: list[tuple[str, str]] = []

    def get(path: str, headers: Mapping[str, str]) -> Answer:
        seen.append((path, {name.lower(): value for name, value in headers.items()}.get("authorization", "")))
        return answer

    server = HttpServer(0, lambda *_: Answer(500), get)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.stop()


MODELS = {"object": "list", "data": [{"id": "m"}, {"id": "n"}]}


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        pytest.param(Answer(200, MODELS), "ok", "takes the key", id="fine"),
        pytest.param(Answer(200, {"data": [{"id": "other"}]}), "warn", "one that it lists: other.", id="another model"),
        pytest.param(Answer(200, b"<html>"), "ok", "takes the key", id="no list of models"),
        pytest.param(Answer(401, {}), "FAIL", "refuses the key (HTTP 401)", id="401"),
        pytest.param(Answer(403, {}), "FAIL", "refuses the key (HTTP 403)", id="403"),
        pytest.param(Answer(404, {}), "warn", "lists no models", id="404"),
        pytest.param(Answer(429, {}), "warn", "for its rate (HTTP 429)", id="429"),
        pytest.param(Answer(503, {}), "FAIL", "HTTP 503", id="503"),
        pytest.param(Answer(302, {}, {"location": "http://127.0.0.1:1/"}), "FAIL", "does not speak", id="redirect"),
        pytest.param(Answer(200, MODELS, cut="at_once"), "FAIL", "gives no answer", id="hangs up"),
    ],
)
def test_answers_of_an_endpoint(
    place: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, status: str, words: str
) -> None:
    monkeypatch.setenv("DOCTOR_KEY", KEY)
    with serving(answer) as (url, seen):
        found = only(models.endpoints(host_of(place, agent_at(url))))
    assert found.status == status
    assert words in found.message + found.fix
    assert KEY not in found.message + found.fix
    assert seen[0] == ("/v1/models", f"Bearer {KEY}")


def test_a_silent_endpoint(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCTOR_KEY", KEY)
    monkeypatch.setattr(inputs, "ENDPOINT_S", 0.5)
    with serving(Answer(200, MODELS, delay_s=20)) as (url, _):
        found = only(models.endpoints(host_of(place, agent_at(url))))
    assert found.status == "FAIL"


def test_nobody_listens(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCTOR_KEY", KEY)
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}/v1"
        found = only(models.endpoints(host_of(place, agent_at(url))))
    assert found.status == "FAIL"
    assert "refused" in found.message


def test_through_a_proxy(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint's name exists nowhere: only the proxy can have answered."""
    monkeypatch.setenv("DOCTOR_KEY", KEY)
    with serving(Answer(200, MODELS)) as (proxy, seen):
        monkeypatch.setenv("http_proxy", proxy.removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "")
        found = only(models.endpoints(host_of(place, agent_at("http://endpoint.invalid/v1"))))
    assert found.status == "ok", found.message
    assert "through the proxy" in found.message
    assert seen[0][0].endswith("/v1/models")


def test_own_servers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every listed server is asked; none at all is a warning, a file that others may write a failure."""
    monkeypatch.setenv("DOCTOR_KEY", KEY)
    agent, path = agent_at("", base_url=None, endpoint_file="urls"), place / "urls"
    assert "no server stands in" in only(models.endpoints(host_of(place, agent))).message
    with serving(Answer(200, MODELS)) as (well, seen), serving(Answer(503, {})) as (sick, _):
        path.touch(0o600)
        path.write_text(f"{well}\n{sick}\n")
        found = list(models.endpoints(host_of(place, agent)))
    assert [finding.status for finding in found] == ["ok", "FAIL"]
    assert [asked for asked, _ in seen] == ["/v1/models"]
    path.chmod(0o666)
    assert only(models.endpoints(host_of(place, agent))).status == "FAIL"


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages", "gemini"])
def test_the_test_server_passes(protocol: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each protocol shows the key in its way and lists its models in its form."""
    monkeypatch.setenv("DOCTOR_KEY", KEY)
    with ScriptedServer({"m": [ScriptedTurn(content="done")]}, keys=[KEY]) as server:
        agent = agent_at(server.url if protocol == "chat" else server.root, protocol=protocol)
        found = only(models.endpoints(host_of(place, agent)))
        assert found.status == "ok", found.message
        assert only(models.endpoints(host_of(place, agent | {"model": "another"}))).status == "warn"
        monkeypatch.setenv("DOCTOR_KEY", "sk-of-somebody-else")
        assert only(models.endpoints(host_of(place, agent))).status == "FAIL"


def test_credentials_in_a_url_are_not_shown(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCTOR_KEY", KEY)
    found = only(models.endpoints(host_of(place, agent_at("http://me:hunter22@127.0.0.1:9/v1"))))
    assert "hunter22" not in found.message + found.fix


# --- data, resources ------------------------------------------------------------------------------------------


def stage(place: Path) -> Path:
    """One staged case: image public, label private; returns the folder of private data."""
    files = {"public": "image.png", "private": "boxes.json"}
    for root, name in files.items():
        path = place / "data" / root / TASK / "case_0001" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    (place / "data/private").chmod(0o700)
    entry = FileEntry(sha256="0" * 64, bytes=5)
    case = CaseEntry(id="case_0001", inputs={"image.png": entry}, private={"boxes.json": entry})
    manifest = Manifest(
        task=TASK,
        task_version=CARD["version"],
        track="detection",
        dataset="bccd",
        sampling="all",
        cases=[case],
    )
    write_record(place / f"data/manifests/{TASK}.json", manifest)
    return place / "data/private"


def test_not_staged(place: Path) -> None:
    assert only(inputs.data(host_of(place))).status == "warn"


def test_staged(place: Path) -> None:
    stage(place)
    assert statuses(list(inputs.data(host_of(place)))) == ["ok", "ok"]


@pytest.mark.parametrize(
    "file", ["public/bccd-det-task/case_0001/image.png", "private/bccd-det-task/case_0001/boxes.json"]
)
def test_staged_files_that_were_purged(place: Path, file: str) -> None:
    stage(place)
    (place / "data" / file).unlink()
    first, *_ = inputs.data(host_of(place))
    assert (first.status, "not any more: bccd-det-task" in first.message) == ("warn", True)


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
def test_private_data_that_others_may_read(place: Path, mode: int) -> None:
    stage(place).chmod(mode)
    *_, last = inputs.data(host_of(place))
    assert last.status == "FAIL"
    assert "chmod 700" in last.fix


def test_results_of_credentialed_data_that_others_may_read(place: Path) -> None:
    stage(place)
    card = CARD | {"dataset": CARD["dataset"] | {"access": "credentialed"}}
    (place / f"cards/{TASK}.yaml").write_text(yaml.safe_dump(card))
    (place / "results").mkdir(mode=0o750)
    agent = agent_at("http://127.0.0.1:9/v1", approved_for=["credentialed"])
    for share, statuses_of in (("private", ["FAIL"]), ("group", [])):
        found = [each for each in inputs.data(host_of(place, agent, share=share)) if "results" in each.message]
        assert [each.status for each in found if each.status != "ok"] == statuses_of, share


def test_resources(place: Path) -> None:
    (place / "wordnet").mkdir()
    host = host_of(place, resources={"wordnet": "wordnet"})
    assert only(inputs.resources(host)).status == "ok"
    host = host_of(place, resources={"wordnet": "wordnet", "chexbert": "nowhere"})
    assert only(inputs.resources(host)).message.startswith("chexbert: nothing is at nowhere")


# --- GPU and Slurm --------------------------------------------------------------------------------------------


def test_gpu(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards are counted for the slots of a local machine; without the driver's shared device file none can be used."""
    cards = [Card(f"GPU-{number}", "NVIDIA H200", (place / f"nvidia{number}",), number) for number in range(3)]
    expected = {(3, 1): ["ok", "FAIL"], (3, 0): ["ok", "warn"], (0, 1): ["warn"], (0, 0): ["ok"]}
    for (there, wanted), statuses in expected.items():
        monkeypatch.setattr(containers, "list_cards", lambda number=there: cards[:number])
        found = list(containers.gpu(host_of(place, sandbox={"gpu": wanted})))
        assert [finding.status for finding in found] == statuses, (there, wanted, found)
        if there:
            assert "3 × NVIDIA H200" in found[0].message and "gpu=3" in found[0].message
            assert "nvidia-modprobe -u -c=0" in found[1].fix


@pytest.mark.parametrize(
    ("sinfo", "state", "sbatch", "status", "words"),
    [
        pytest.param("true", "UP", "true", "ok", "config.yaml: this cluster takes its jobs", id="up"),
        pytest.param('case "$*" in *%t*) echo "cpu|drain";; esac', "UP", "true", "FAIL", "sinfo -R", id="drained"),
        pytest.param("true", "DOWN", "true", "FAIL", "partition cpu is not up", id="down"),
        pytest.param("true", "UP MaxTime=10", "true", "FAIL", "ends jobs after 10 min", id="short"),
        pytest.param(
            "true", "UP", "echo allocation failure: Invalid account; exit 1", "FAIL", "site --account", id="account"
        ),
        pytest.param("echo 'Unable to contact slurm controller'; exit 1", "", "", "warn", "Unable to", id="no answer"),
    ],
)
def test_slurm(
    place: Path, monkeypatch: pytest.MonkeyPatch, sinfo: str, state: str, sbatch: str, status: str, words: str
) -> None:
    """The shipped profile against programs that answer so; test_first_slurm.py asks a real Slurm."""
    program(place, monkeypatch, "sinfo", sinfo)
    program(place, monkeypatch, "scontrol", f"echo 'PartitionName=cpu State={state}'")
    program(place, monkeypatch, "sacctmgr", "exit 1")
    program(place, monkeypatch, "sbatch", sbatch)
    program(place, monkeypatch, "squeue", "true")  # without it Snakemake's plugin makes no line
    found = only(jobs.slurm(Host(None, place, ROOT, "profiles/slurm")))
    assert found.status == status
    assert words in found.message + found.fix


def test_a_profile_that_lowers_what_runs_need(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 3600 s are 60 min, and 30 for a broken provider; 64 GB and the driver are 63 936 MiB."""
    for name in ("sinfo", "scontrol", "sacctmgr", "sbatch", "squeue"):
        program(place, monkeypatch, name, "true")
    run = {"run_agent": {"runtime": 60, "mem_mb": 32_000, "slurm_partition": "cpu"}}
    profile = {"executor": "slurm", "default-resources": {"runtime": 30, "mem_mb": 4000}, "set-resources": run}
    (place / "profiles/own").mkdir(parents=True)
    (place / "profiles/own/config.yaml").write_text(yaml.safe_dump(profile))
    sbatch = 'case "$*" in *cpus-per-task=4*) echo Requested node configuration is not available; exit 1;; esac'
    program(place, monkeypatch, "sbatch", sbatch)
    found = list(jobs.slurm(replace(host_of(place), profile="profiles/own")))
    staging, *found = found
    assert "staging: sbatch refuses the job: Requested node configuration" in staging.message
    assert staging.fix.startswith("Run `automedbench site`, which asks for what fits; or run `snakemake prepare`")
    assert [(each.status, each.message) for each in found] == [
        ("FAIL", "runs: runtime: 60 is below the 90 that the campaign's limits need"),
        ("FAIL", "runs: mem_mb: 32000 is below the 63936 that the campaign's limits need"),
        ("warn", "executor: slurm makes every step a job: six per run instead of two"),
    ]
    assert all(each.fix for each in found)


def test_what_a_job_found_is_read_also_when_that_is_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A campaign without GPUs: the kernel has nothing to try. A program of the site prints a list before."""
    monkeypatch.setattr(jobs.node, "LATEST_S", 0.0)
    job = trial.TrialJob("runs", "7", "first-run-7")
    for look, number in ((kernel, 0), (local.limits, 1)):
        (place / "try.pickle").write_bytes(pickle.dumps((jobs.OnNode("kernel", look), Host(None, place, ROOT))))
        jobs.print_results(str(place / "try.pickle"))
        job.log_path.parent.mkdir(parents=True, exist_ok=True)
        job.log_path.write_text(f"[{{module loaded}}]\n{capsys.readouterr().out}")
        assert len(jobs._read_report(job)) == number
    job.log_path.write_text("[]\n")
    with pytest.raises(InfrastructureError, match="is not seen in"):
        jobs._read_report(job)


def test_misspelt_profile(place: Path) -> None:
    with pytest.raises(ConfigError, match=r"no profile 'profiles/slrm' \(did you mean 'profiles/slurm'\?\); there"):
        list(jobs.slurm(Host(None, place, ROOT, "profiles/slrm")))


# --- the command ----------------------------------------------------------------------------------------------


@pytest.fixture
def doctor(place: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command in a process of its own, in an empty folder, without Slurm."""

    def call(*options: str) -> subprocess.CompletedProcess[str]:
        code = "from automedbench.commands import run; run()"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "PYTHONPATH": str(ROOT / "src"),
            "SLURM_CONF": os.devnull,
            "DOCTOR_KEY": KEY,
        }
        return subprocess.run(
            [sys.executable, "-c", code, "doctor", *options],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return call


def test_command_without_a_campaign(doctor: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = doctor()
    assert done.stderr == ""
    *lines, counts = done.stdout.splitlines()
    assert len(lines) >= 10
    assert all(line.startswith(("ok  ", "warn", "FAIL")) for line in lines)
    assert done.returncode == (0 if counts.endswith(" 0 failures") else 1)


def test_command_with_a_campaign(place: Path, doctor: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    config = config_of(place, agent_at("http://127.0.0.1:9/v1"))
    (place / "campaign.yaml").write_text(yaml.safe_dump(config))
    done = doctor("--configfile", "campaign.yaml", "--json")
    findings = {finding["probe"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 1
    assert findings["endpoints"]["status"] == "FAIL"
    assert findings["keys"]["status"] == "ok"
    assert KEY not in done.stdout + done.stderr


def test_command_with_a_wrong_campaign(place: Path, doctor: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Its problems are findings; the machine is probed all the same."""
    (place / "campaign.yaml").write_text("matrx: {}\n")
    done = doctor("--configfile", "campaign.yaml", "--json")
    findings = json.loads(done.stdout)
    assert done.returncode == 1
    assert next(finding["status"] for finding in findings if finding["probe"] == "campaign") == "FAIL"
    assert any(finding["probe"] == "clock" for finding in findings)
