"""What a probe's report means, and which memory limit applies. The probe itself runs in tests/contract."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.boxes import find_leaks, probe_code, read_probe, require_isolation
from automedbench.sandbox.container import cgroup
from automedbench.sandbox.container.cgroup import job_memory, memory_limit
from automedbench.sandbox.container.process import memory_of_call

GOOD: dict[str, Any] = {
    "seccomp": True,
    "no_new_privs": True,
    "capabilities": 0,
    "processes": 3,
    "interfaces": ["lo"],
    "opened": [],
    "written": [],
    "values": [],
    "max_processes": 4096,
    "hook_in_place": True,
}
KEY = "sk-0123456789abcdef"
ENVIRONMENT = {"OPENAI_API_KEY": KEY, "HOME": "/home/somebody", "SHORT_TOKEN": "abc"}


def found(**different: Any) -> list[str]:
    probe = read_probe(json.dumps(GOOD | different).encode())
    return find_leaks(probe, sealed=True, environment=ENVIRONMENT)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


LEAKS = {
    "isolated": ({}, None),
    "no-filter-is-no-leak": ({"seccomp": False}, None),
    "home-is-no-secret": ({"values": [digest("/home/somebody"), digest("abc")]}, None),
    "host-file": ({"opened": ["/n/canary"]}, "/n/canary of the host can be read"),
    "public-writable": ({"written": ["/data/public"]}, "/data/public can be written"),
    "key": ({"values": [digest(KEY)]}, "the variable OPENAI_API_KEY is visible"),
    "privileges": ({"no_new_privs": False}, "processes may gain privileges"),
    "capabilities": ({"capabilities": 0x200000}, "processes hold capabilities (200000)"),
    "interface": ({"interfaces": ["lo", "eth0"]}, "there are network interfaces (lo, eth0)"),
    "host-processes": ({"processes": 200}, "200 processes are visible"),
}


@pytest.mark.parametrize(("different", "leak"), LEAKS.values(), ids=LEAKS)
def test_leaks(different: dict[str, Any], leak: str | None) -> None:
    assert found(**different) == ([] if leak is None else [leak])


def test_an_open_network_may_have_interfaces() -> None:
    probe = read_probe(json.dumps(GOOD | {"interfaces": ["lo", "eth0"]}).encode())
    assert find_leaks(probe, sealed=False, environment={}) == []


def test_a_leak_is_the_machines_fault() -> None:
    probe = read_probe(json.dumps(GOOD | {"opened": ["/n/canary"]}).encode())
    with pytest.raises(InfrastructureError, match="does not isolate on this machine: /n/canary") as caught:
        require_isolation(probe, sealed=True)
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize(
    "output",
    [b"", b"\xff", b"[]", b"{}", b'{"a": ' * 50],
    ids=["empty", "bytes", "list", "incomplete", "unfinished"],
)
def test_a_report_that_is_none(output: bytes) -> None:
    with pytest.raises(InfrastructureError, match="gave no report"):
        read_probe(output)


def test_paths_cannot_break_out_of_the_probe() -> None:
    code = probe_code([Path("/a'b\"\nPROBE\nrm -rf /")])
    assert code.count("\nPROBE\n") == 1


def limit(root: Path, membership: str, **files: str) -> int | None:
    for name, text in files.items():
        place = root / name.replace("__", "/").replace("_max", ".max").replace("limit_in", "memory.limit_in")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    (root / "membership").write_text(membership)
    return memory_limit(root, root / "membership", machine=10**12)


def test_no_cgroup(tmp_path: Path) -> None:
    assert memory_limit(tmp_path, tmp_path / "none", machine=10**12) is None
    assert limit(tmp_path, "0::/\n") is None


def test_memory_of_a_job_version_2(tmp_path: Path) -> None:
    # The smallest along the way counts: of the step, the job (8 GB) and the node.
    files = {"slurm__job__step__memory_max": "max\n", "slurm__job__memory_max": "8000000000\n"}
    assert limit(tmp_path, "0::/slurm/job/step\n", **files, slurm__memory_max="64000000000\n") == 8_000_000_000


def test_memory_of_a_job_version_1(tmp_path: Path) -> None:
    (tmp_path / "memory/job").mkdir(parents=True)
    (tmp_path / "memory/job/memory.limit_in_bytes").write_text("4000000000\n")
    (tmp_path / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")  # the kernel's "none"
    assert limit(tmp_path, "5:cpu:/\n4:memory:/job\n0::/\n") == 4_000_000_000


JOBS: dict[str, tuple[dict[str, str], int | None, int | None]] = {
    # Variables of Slurm (sbatch(1): memory in MiB), limit of the cgroup, bytes of the job by hand.
    "no job": ({}, None, None),
    "memory of the node": ({"SLURM_MEM_PER_NODE": "4000"}, None, 4_194_304_000),
    "of each core": ({"SLURM_MEM_PER_CPU": "1000", "SLURM_CPUS_ON_NODE": "8"}, None, 8_388_608_000),
    "of each GPU": ({"SLURM_MEM_PER_GPU": "2000", "SLURM_GPUS_ON_NODE": "2"}, None, 4_194_304_000),
    "the whole node": ({"SLURM_MEM_PER_NODE": "0"}, None, None),
    "number of cores not told": ({"SLURM_MEM_PER_CPU": "1000", "SLURM_CPUS_ON_NODE": ""}, None, None),
    "a cgroup that is lower": ({"SLURM_MEM_PER_NODE": "4000"}, 3_000_000_000, 3_000_000_000),
    "a cgroup that is higher": ({"SLURM_MEM_PER_NODE": "4000"}, 5_000_000_000, 4_194_304_000),
    "a cgroup alone": ({}, 5_000_000_000, 5_000_000_000),
}


@pytest.mark.parametrize(("variables", "group", "job"), JOBS.values(), ids=JOBS.keys())
def test_memory_of_a_job(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], group: int | None, job: int | None
) -> None:
    monkeypatch.setattr(cgroup, "memory_limit", lambda: group)
    assert job_memory(variables) == job


def test_a_call_has_less_than_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 500 MB are the driver's. What is wanted holds where it is less; a job without limit changes nothing."""
    for name in ("NODE", "CPU", "GPU"):
        monkeypatch.delenv(f"SLURM_MEM_PER_{name}", raising=False)
    for job, wanted, call in (
        (4_000_000_000, 64, 3_500_000_000),
        (4_000_000_000, None, 3_500_000_000),
        (4_000_000_000, 2, 2_000_000_000),
        (None, 64, 64_000_000_000),
        (None, None, None),
    ):
        monkeypatch.setattr(cgroup, "memory_limit", lambda job=job: job)
        assert memory_of_call(wanted) == call
    monkeypatch.setattr(cgroup, "memory_limit", lambda: 400_000_000)
    with pytest.raises(InfrastructureError, match=r"has 0.4 GB of memory, at least 0.6 GB are needed") as caught:
        memory_of_call(64)
    assert "mem_mb" in str(caught.value) and len(str(caught.value).splitlines()) <= 3
