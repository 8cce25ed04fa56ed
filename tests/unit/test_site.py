"""A profile for a cluster: what recorded sites lead to, derived by hand from their files (tests/sites/README.md)."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from snakemake.cli import get_profile_dir, parse_args
from snakemake_executor_plugin_slurm.partitions import get_best_partition, read_partition_file

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.records import Used
from automedbench.campaign.load import Campaign
from automedbench.commands import main
from automedbench.commands._machine.draft import ProfileDraft, draft_profile, partitions_text, profile_text, write_files
from automedbench.commands._machine.examine import ProbeResult
from automedbench.commands._machine.placement import Needs, SiteOptions
from automedbench.commands._machine.profile import Profile, compare_profile
from automedbench.commands._machine.slurm import (
    Gpus,
    NodeKind,
    Site,
    gpus,
    minutes,
    parse,
    read_dumps,
    site_dumps,
    write_dumps,
)
from automedbench.planning.load import plan
from automedbench.planning.needs import run_resources, smaller_requests
from automedbench.planning.profiles import refuse_lost_resources

ROOT = Path(__file__).resolve().parents[2]
SITES = ROOT / "tests/sites"
NAMES = sorted(path.name for path in SITES.iterdir() if path.is_dir())

RUN = Needs(90, 63_936, 8)
"""By the cards: 3600 s and 30 min for a broken provider; 64e9 / 2**20 = 61 035.2 MiB and 2900 for the driver."""
ON_GPU = Needs(90, 63_936, 8, gpu=1)
SMALL = Needs(90, 25_789, 8)
"""limits.mem_gb: 24."""
PLAIN, PREEMPTIBLE = SiteOptions(), SiteOptions(preemptible=True)


def site_of(name: str) -> Site:
    return parse(read_dumps(SITES / name))


@dataclass(frozen=True)
class Row:
    """What is asked of a site, and what its files lead to: partitions, account and QOS of small steps and of runs."""

    site: str
    needs: Needs = RUN
    asked: SiteOptions = PLAIN
    small: str = ""
    run: str = ""
    account: str | None = None
    run_account: str | None = None
    run_qos: str | None = None
    run_cpus: int = 8
    jobs: int = 200
    warned: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        model = f" {self.needs.model}" if self.needs.model else ""
        return f"{self.site}: {self.needs.gpu} GPU{model}{' preemptible' * self.asked.preemptible}"


ROWS = [
    # Nodes have 31 000 MiB; nothing has a higher tier than the one partition, so PreemptMode=REQUEUE preempts nothing.
    Row("one-partition", SMALL, small="debug", run="debug"),
    # The default; `all` and `condo` are below others (tiers 5 and 1 against 10) and preempted, `mem` is no default.
    Row("many-partitions", small="cmp", run="cmp", account="users"),
    Row("many-partitions", ON_GPU, small="cmp", run="gpu", account="users"),
    # Of the partitions that are preempted, `condo` has an A100; its QOS condo_guest takes 50: 50 × 0.9 − 1.
    Row(
        "many-partitions",
        Needs(90, 63_936, 8, 1, "a100"),
        PREEMPTIBLE,
        small="cmp",
        run="condo",
        account="users",
        jobs=44,
    ),
    Row("gpu-types", small="cpu", run="cpu", account="jsmith123", warned=("room for 40000 more files",)),
    # 16 nodes each in h100 and nvl, by name h100; GPU partitions deny the default account and take qos_gpu alone, which
    # lets 100 jobs in: 100 × 0.9 − 1.
    Row(
        "gpu-types",
        ON_GPU,
        small="cpu",
        run="h100",
        account="jsmith123",
        run_account="jsmith123_gpu",
        run_qos="qos_gpu",
        jobs=89,
        warned=("room for 40000 more files",),
    ),
    # `interactive` has A100 too, and is for people.
    Row(
        "gpu-types",
        Needs(90, 63_936, 8, 8, "a100"),
        small="cpu",
        run="a100",
        account="jsmith123",
        run_account="jsmith123_gpu",
        run_qos="qos_gpu",
        jobs=89,
        warned=("room for 40000 more files",),
    ),
    # `medium` gives whole nodes, `interactive` is for people; no default account: the first by name.
    Row("mig", small="small", run="small", account="project_2001234"),
    # gputest ends after 15 min, gpumedium gives whole nodes, gpuslice only slices; the partition's QOS gpusmall lets
    # 20 jobs in: 20 × 0.9 − 1.
    Row(
        "mig",
        ON_GPU,
        small="small",
        run="gpusmall",
        account="project_2001234",
        jobs=17,
        warned=("a100, a100_1g.5gb: runs compare on one of them",),
    ),
    Row(
        "mig",
        Needs(90, 63_936, 8, 1, "a100_1g.5gb"),
        small="small",
        run="gpuslice",
        account="project_2001234",
        jobs=17,
        warned=("GPUs for 28 runs and memory for 7",),
    ),
    # Four hours would end a run of five.
    Row("no-accounting", small="short", run="short", warned=("no Apptainer",)),
    Row("no-accounting", Needs(330, 63_936, 8), small="normal", run="normal", warned=("no Apptainer",)),
    Row("no-cgroups", small="secondary", run="secondary", warned=("whole nodes", "lies on xfs", "without cgroups")),
    Row("no-cgroups", ON_GPU, small="secondary", run="stat", warned=("whole nodes", "lies on xfs", "without cgroups")),
    Row("preemptible-qos", small="compute", run="compute", account="stf"),
    # There the same nodes under another QOS; `ckpt` has GPUs, which such a run asks none of.
    Row("preemptible-qos", RUN, PREEMPTIBLE, small="compute", run="compute", account="stf", run_qos="stf-ckpt"),
    # gpu-l40s takes a QOS that is not the user's; gpu-a40 takes stf-gpu-a40, which is not the default.
    # 52 CPUs for 8 GPUs.
    Row("preemptible-qos", ON_GPU, small="compute", run="gpu-a40", account="stf", run_qos="stf-gpu-a40", run_cpus=6),
    Row(
        "preemptible-qos",
        ON_GPU,
        PREEMPTIBLE,
        small="compute",
        run="ckpt",
        account="stf",
        run_qos="stf-ckpt",
        run_cpus=6,
        warned=("a40, l40s: runs compare on one of them",),
    ),
    Row("preemptible-partition", small="day", run="day", account="pi_doe"),
    Row(
        "preemptible-partition",
        ON_GPU,
        small="day",
        run="gpu",
        account="pi_doe",
        warned=("a100, h200: runs compare on one of them",),
    ),
    # Without a type: 128 nodes of scavenge against 20 of scavenge_gpu do not count, as only these have GPUs. The
    # account's 10 000 of all partitions come first; its 300 hold in scavenge_gpu only, and are above 200 anyway.
    # 48 CPUs for 8 GPUs.
    Row(
        "preemptible-partition",
        Needs(90, 63_936, 8, 1, "h200"),
        PREEMPTIBLE,
        small="day",
        run="scavenge_gpu",
        account="pi_doe",
        run_cpus=6,
    ),
    # Three hours hold 90 min, and of equals the first by name; `interac` is for people.
    Row("modules", small="cpubase_bycore_b1", run="cpubase_bycore_b1", account="def-doe_cpu"),
    Row(
        "modules",
        ON_GPU,
        small="cpubase_bycore_b1",
        run="gpubase_bygpu_b1",
        account="def-doe_cpu",
        run_account="def-doe_gpu",
    ),
    Row(
        "modules",
        Needs(270, 63_936, 8, 1, "a100_3g.20gb"),
        small="cpubase_bycore_b1",
        run="gpubase_bygpu_b2",
        account="def-doe_cpu",
        run_account="def-doe_gpu",
        run_cpus=6,
        warned=("GPUs for 8 runs and memory for 7",),
    ),
    # 128 × 0.9 − 1 of QOS normal; 32 × 0.9 − 1 where runs go under the partition's QOS gpu. 192 000 MiB for 4 GPUs.
    Row("qos-limits", small="normal", run="normal", account="users", jobs=114),
    Row("qos-limits", ON_GPU, small="normal", run="gpu", account="users", jobs=27, warned=("memory for 3",)),
]


def written(tmp_path: Path, site: Site, draft: ProfileDraft) -> Profile:
    """The profile as its files say."""
    for name, text in (
        ("config.yaml", profile_text(draft, "profiles/site", site.cluster)),
        ("partitions.yaml", partitions_text(draft, "unknown")),
    ):
        (tmp_path / name).write_text(text)
    content, partitions = (yaml.safe_load((tmp_path / f"{name}.yaml").read_text()) for name in ("config", "partitions"))
    return Profile(tmp_path / "config.yaml", content, partitions)


def wanted(needs: Needs) -> dict[str, Any]:
    """What the rule run_agent asks for."""
    asked = {"runtime": needs.minutes, "mem_mb": needs.memory_mb, "cpus_per_task": needs.cpus}
    return asked | ({"gpu": needs.gpu} if needs.gpu else {}) | ({"gpu_model": needs.model} if needs.model else {})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_recorded_sites(tmp_path: Path, row: Row) -> None:
    site = site_of(row.site)
    draft = draft_profile(site, row.needs, row.asked)
    profile = written(tmp_path, site, draft)
    small, run = profile.job("", {}), profile.job("run_agent", wanted(row.needs))
    assert (profile.find_partition(small), profile.find_partition(run)) == (row.small, row.run)
    assert (small.get("slurm_account"), small.get("qos")) == (row.account, None)
    assert (run.get("slurm_account"), run.get("qos")) == (row.run_account or row.account, row.run_qos)
    assert (run["cpus_per_task"], profile.content["jobs"]) == (row.run_cpus, row.jobs)
    assert set(profile.partitions) == ({row.small} if row.asked.preemptible else {row.small, row.run})
    assert profile.content.get("slurm-requeue", False) is row.asked.preemptible
    assert profile.content.get("slurm-no-requeue", False) is not row.asked.preemptible
    assert len(draft.warnings) == len(row.warned), draft.warnings
    assert all(words in text for words, text in zip(row.warned, draft.warnings, strict=True)), draft.warnings


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_executor_sends_jobs_where_the_profile_says(tmp_path: Path, row: Row) -> None:
    """Its own choice, from the partition file, for a run, a small step, a judgement and staging."""
    site = site_of(row.site)
    profile = written(tmp_path, site, draft_profile(site, row.needs, row.asked))
    partitions = read_partition_file(tmp_path / "partitions.yaml")
    for rule, asked, place in (
        ("run_agent", wanted(row.needs), row.run),
        ("", {}, row.small),
        ("score_judge", {"runtime": 60}, row.small),
    ):
        resources = profile.job(rule, asked)
        job = SimpleNamespace(name=rule, threads=1, resources=resources)
        chosen = resources.get("slurm_partition") or get_best_partition(partitions, job, logging.getLogger())
        assert chosen == place, rule


@pytest.mark.parametrize("row", ROWS[3::9], ids=lambda row: row.name)
def test_snakemake_reads_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: Row) -> None:
    site = site_of(row.site)
    written(tmp_path, site, draft_profile(site, row.needs, row.asked))
    options = ["--profile", str(tmp_path)]
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["snakemake", *options])
    _, arguments = parse_args(options)
    assert (arguments.executor, arguments.jobs, arguments.local_cores) == ("automedbench-slurm", row.jobs, 2)
    assert Path(arguments.slurm_partition_config) == tmp_path / "partitions.yaml"


@pytest.mark.parametrize(
    ("site", "key", "value"),
    [
        pytest.param("preemptible-qos", "max-jobs-per-timespan", "6/6s", id="half of 2 calls per second"),
        pytest.param("mig", "max-jobs-per-timespan", "10/6s", id="no limit of calls"),
        pytest.param("mig", "precommand", None, id="Apptainer in PATH"),
        pytest.param(
            "gpu-types",
            "precommand",
            ". /data/apps/lmod/lmod/init/sh && module load apptainer/1.3.10",
            id="newest module, 1.3.10 above 1.2.3 and before Singularity",
        ),
        pytest.param("mig", "persistence-backend", "db", id="many small files on lustre"),
        pytest.param("no-accounting", "persistence-backend", None, id="earlier calls left files"),
        pytest.param("no-cgroups", "persistence-backend", None, id="local disk"),
        pytest.param("mig", "latency-wait", 60, id="network file system"),
        pytest.param("no-cgroups", "latency-wait", 20, id="another file system"),
    ],
)
def test_keys_of_the_profile(tmp_path: Path, site: str, key: str, value: object) -> None:
    parsed = site_of(site)
    assert written(tmp_path, parsed, draft_profile(parsed, RUN, SiteOptions())).content.get(key) == value


@pytest.mark.parametrize(
    ("site", "needs", "asked", "words"),
    [
        pytest.param("one-partition", RUN, SiteOptions(), "debug has at most 31000 MiB and 8 CPUs", id="memory"),
        pytest.param("one-partition", SMALL, PREEMPTIBLE, "debug preempts no jobs", id="nothing preempts"),
        pytest.param("no-accounting", ON_GPU, SiteOptions(), "short has no GPUs", id="no GPUs"),
        pytest.param("gpu-types", Needs(90, 1, 1, 1, "a40"), SiteOptions(), "a100 has a100", id="unknown type"),
        pytest.param(
            "gpu-types", Needs(90, 1, 1, 16), SiteOptions(), "no node with 16 GPUs", id="more than a node has"
        ),
        pytest.param("mig", Needs(12_000, 1, 1), SiteOptions(), "small ends jobs after 4320 min", id="wall time"),
        pytest.param("mig", RUN, SiteOptions(account="other"), "does not take account other", id="account"),
        pytest.param(
            "mig", RUN, SiteOptions(partition="gone"), "none of mahti, which has: test, medium", id="partition"
        ),
        pytest.param("many-partitions", ON_GPU, SiteOptions(run_partition="amd"), "amd is not up", id="down"),
    ],
)
def test_what_a_site_cannot_do_is_refused(site: str, needs: Needs, asked: SiteOptions, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        draft_profile(site_of(site), needs, asked)
    assert len(str(caught.value).splitlines()) <= 3


def test_an_urgent_partition_is_used_only_by_name() -> None:
    """Beside urgent (tier 100) day (10) can be preempted as well, and stays the usual place; scavenge (1) does not."""
    site = site_of("preemptible-partition")
    day = dataclasses.replace(next(each for each in site.partitions if each.name == "day"), preempt_mode="REQUEUE")
    urgent = dataclasses.replace(day, name="urgent", default=False, tier=100)
    site = dataclasses.replace(
        site, partitions=(urgent, day, *(each for each in site.partitions if "scavenge" in each.name))
    )

    def place_of_runs(options: SiteOptions) -> str:
        return next(line for line in draft_profile(site, RUN, options).messages if line.startswith("runs: ")).split()[2]

    assert place_of_runs(PLAIN) == "day,"
    assert place_of_runs(SiteOptions(partition="urgent")) == "urgent,"
    assert place_of_runs(PREEMPTIBLE) == "scavenge,"


def test_a_qos_that_preempts_the_usual_one_is_used_only_by_name() -> None:
    site = site_of("qos-limits")
    urgent = dataclasses.replace(site.qos["normal"], preempts=frozenset({"normal"}))
    own = tuple(dataclasses.replace(each, qos=("urgent", *each.qos)) for each in site.associations)
    site = dataclasses.replace(site, preempt_type="qos", associations=own, qos={**site.qos, "urgent": urgent})
    site = dataclasses.replace(
        site, partitions=tuple(dataclasses.replace(each, preempt_mode="REQUEUE") for each in site.partitions)
    )
    assert draft_profile(site, RUN, PLAIN).messages[2].startswith("runs: partition normal, account users, 90 min")
    assert "QOS urgent" in draft_profile(site, RUN, SiteOptions(qos="urgent")).messages[2]


def test_smaller_requests_follow_what_runs_used() -> None:
    """The largest of 20 runs: 30 of 100 s are 0.3 CPUs, so 1; 3000 MiB, twice that are 6.3 GB, so 7."""
    runs = [Used(held_s=100, cpu_s=10 + k, peak_memory_mib=2050 + 50 * k) for k in range(1, 20)]
    requested = wanted(RUN)
    assert smaller_requests(runs, requested) == []
    used, cpus, memory = smaller_requests([*runs, Used(held_s=100, cpu_s=30, peak_memory_mib=3000)], requested)
    assert used == "20 runs used at most 0.3 of 8 CPUs (mean of a run), 3000 of 63936 MiB"
    assert "cpus_per_task: 1 below" in cpus and "limits.mem_gb: 7 in" in memory
    busy = Used(held_s=100, cpu_s=300, peak_memory_mib=40_000)
    assert len(smaller_requests([busy, *runs], requested)) == 1


def test_accounts_are_needed_where_they_are_enforced() -> None:
    dumps = {**read_dumps(SITES / "mig"), "associations": ""}
    with pytest.raises(ConfigError, match="small needs an account, and sacctmgr shows none of yours"):
        draft_profile(parse(dumps), RUN, SiteOptions())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        ("30:00", 30),
        ("08:00:00", 480),
        ("2-00:00:00", 2880),
        ("1-12", 2160),
        ("1-12:30", 2190),
        ("UNLIMITED", math.inf),
        ("infinite", math.inf),
        ("", math.inf),
    ],
)
def test_times(text: str, expected: float) -> None:
    """As sbatch(1) lists the forms of --time."""
    assert minutes(text) == expected


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("(null)", ()),
        ("gpu:4", (Gpus("", 4),)),
        ("gpu:a100:4(S:0-1)", (Gpus("a100", 4),)),
        ("gpu:a100:4(S:0,2),nvme:3600", (Gpus("a100", 4),)),
        ("gpu:3090:8", (Gpus("3090", 8),)),
        ("gpu:a100:3(S:0),gpu:a100_1g.5gb:7(S:1)", (Gpus("a100", 3), Gpus("a100_1g.5gb", 7))),
        ("gpu:nvidia_a100-sxm4-80gb:8(S:1,3,5,7)", (Gpus("nvidia_a100-sxm4-80gb", 8),)),
        ("mps:100,shard:8", ()),
    ],
)
def test_generic_resources(gres: str, expected: tuple[Gpus, ...]) -> None:
    assert gpus(gres) == expected


def test_slices_are_told_from_cards() -> None:
    names = ["a100", "a100_1g.5gb", "1g.10gb", "nvidia_a100_80gb_pcie_3g.40gb", "h100_80gb"]
    assert [Gpus(name, 1).sliced for name in names] == [False, True, True, True, False]


def test_a_node_with_cards_and_slices() -> None:
    """Without a type its cards count, and the slices only where there is nothing else."""
    mixed = NodeKind(1, 64, 256_000, (Gpus("a100", 3), Gpus("a100_1g.5gb", 7)))
    assert [mixed.count(model) for model in (None, "a100", "a100_1g.5gb", "h100")] == [3, 3, 7, 0]
    assert NodeKind(1, 64, 256_000, (Gpus("a100_1g.5gb", 7),)).count(None) == 7


# --- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["modules", "no-cgroups"])
def test_a_record_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    dumps = read_dumps(SITES / name)
    write_dumps(dumps, tmp_path)
    assert parse(read_dumps(tmp_path)) == parse(dumps)


def test_a_second_call_keeps_what_was_edited(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    assert list(write_files({path: "jobs: 1\n"}, force=False)) == [f"{path}: written"]
    assert list(write_files({path: "jobs: 1\n"}, force=False)) == [f"{path}: as it was"]
    path.write_text("jobs: 7 # by hand\n")
    (said,) = write_files({path: "jobs: 1\n"}, force=False)
    assert "kept, as it differs" in said
    assert (path.read_text(), path.with_name("config.yaml.new").read_text()) == ("jobs: 7 # by hand\n", "jobs: 1\n")
    assert list(write_files({path: "jobs: 1\n"}, force=True)) == [f"{path}: written"]
    assert path.read_text() == "jobs: 1\n"


def test_the_command_says_what_it_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything worth saying fits on a screen, and a second call gives the same files."""
    monkeypatch.chdir(ROOT)
    call = ["site", "--dumps", str(SITES / "no-cgroups"), "--out", str(tmp_path), "--network", "no"]
    main(call)
    first = capsys.readouterr().out.splitlines()
    main(call)
    second = capsys.readouterr().out.splitlines()
    assert len(first) <= 15
    assert first[2] == "runs: partition secondary, 90 min, 63936 MiB, 8 CPUs"
    assert [line.partition(": ")[2] for line in first[-3:-1]] == ["written", "written"]
    assert [line.partition(": ")[2] for line in second[-3:-1]] == ["as it was", "as it was"]
    assert first[-1].endswith(f"`snakemake --profile {tmp_path} -n`")
    assert yaml.safe_load((tmp_path / "partitions.yaml").read_text())["nodes_reach_internet"] == "no"


@pytest.mark.parametrize("name", NAMES)
def test_every_line_has_its_reason(tmp_path: Path, name: str) -> None:
    site = site_of(name)
    draft = draft_profile(site, SMALL, SiteOptions())
    lines = [*profile_text(draft, "p", "c").splitlines(), *partitions_text(draft, "no").splitlines()]
    values = [line for line in lines if line and not line.startswith("#") and not line.endswith(":")]
    assert [line for line in values if "#" not in line and not line.startswith("nodes_reach")] == []
    assert max(map(len, lines)) <= 160


def test_the_machine_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that answer like those of a cluster; accounting refuses, which is no fault."""
    for name, text in {
        "sinfo": "echo 'cpu|2|8|64000|gpu:t4:1'",
        "scontrol": 'case "$2" in config) echo "ClusterName = tiny";; *) echo "PartitionName=cpu State=UP";; esac',
        "sacctmgr": "echo 'You are not running a supported accounting_storage plugin' >&2; exit 1",
        "apptainer": "echo apptainer version 1.4.0",
        "bash": 'echo "init=/init/sh"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    site = parse(site_dumps({"results": str(tmp_path / "results")}))
    (partition,) = site.partitions
    assert (site.cluster, partition.name, partition.models) == ("tiny", "cpu", ("t4",))
    assert (site.associations, site.accounting, site.module_init) == ((), False, "")
    assert site.folders["results"].free_bytes > 0


def test_without_slurm_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDataError, match="on a login node"):
        site_dumps({})


# --- what a run asks for ------------------------------------------------------------------------------------------


@functools.cache
def shipped() -> Campaign:
    """The campaign of config/config.yaml, of one task."""
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    places = {key: str(ROOT / config[key]) for key in ("agents_file", "judges_file")}
    return plan(config | places | {"cards": [str(ROOT / "config/tasks/detection")]}, [])


def campaign_of(**changes: dict[str, Any]) -> Campaign:
    """The same with other keys of its sections."""
    config = shipped().config
    sandbox = config.sandbox.model_copy(update=changes.get("sandbox", {}))
    limits = config.limits | changes.get("limits", {})
    return dataclasses.replace(shipped(), config=config.model_copy(update={"sandbox": sandbox, "limits": limits}))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param({}, (90, 63_936), id="cards: 3600 s, 64 GB"),
        pytest.param({"time_limit_s": 14_400}, (270, 63_936), id="four hours"),
        pytest.param({"mem_gb": 16}, (90, 18_159), id="16e9 / 2**20 = 15 258.8 MiB"),
        pytest.param({"time_limit_s": None, "mem_gb": None}, (1440, 63_936), id="no limits"),
    ],
)
def test_a_job_is_larger_than_its_run(limits: dict[str, Any], expected: tuple[int, int]) -> None:
    asked = run_resources(campaign_of(limits=limits))
    assert (asked["runtime"], asked["mem_mb"]) == expected
    assert "gpu" not in asked


def needs_of(campaign: Campaign) -> Needs:
    return Needs.from_resources(run_resources(campaign))


def test_a_job_has_the_gpus_of_its_run() -> None:
    needs = needs_of(campaign_of(sandbox={"gpu": 2, "gpu_model": "h100"}))
    assert (needs.gpu, needs.model) == (2, "h100")


PROFILE = "set-resources:\n  run_agent:\n    slurm_partition: gpu\n  stage_task:\n    mem_mb: 5\n"


@pytest.mark.parametrize(
    ("words", "kept", "lost"),
    [
        pytest.param(["--set-resources", "run_agent:runtime=9"], {"run_agent": {"runtime": 9}}, True, id="lost"),
        pytest.param(["--set-resources=run_agent:runtime=9"], {"run_agent": {"runtime": 9}}, True, id="equals sign"),
        pytest.param(
            ["--set-resources", "…"],
            {"run_agent": {"slurm_partition": "b"}, "stage_task": {"mem_mb": 5}},
            False,
            id="kept",
        ),
        pytest.param(["-n"], {}, False, id="not on the command line"),
    ],
)
def test_resources_of_the_profile_are_not_lost(
    tmp_path: Path, words: list[str], kept: dict[str, dict[str, Any]], lost: bool
) -> None:
    (tmp_path / "config.yaml").write_text(PROFILE)
    call = ["snakemake", "--profile", str(tmp_path), *words]
    if lost:
        with pytest.raises(ConfigError, match="run_agent:slurm_partition=gpu, stage_task:mem_mb=5"):
            refuse_lost_resources(call, {}, kept, get_profile_dir)
        with pytest.raises(ConfigError):
            refuse_lost_resources(["snakemake", *words], {"SNAKEMAKE_PROFILE": str(tmp_path)}, kept, get_profile_dir)
    else:
        refuse_lost_resources(call, {}, kept, get_profile_dir)
    refuse_lost_resources(["snakemake", *words], {}, kept, get_profile_dir)  # no profile, nothing to lose


# --- the doctor ---------------------------------------------------------------------------------------------------


def compared(
    tmp_path: Path,
    site: Site,
    campaign: Campaign,
    changes: dict[str, Any] | None = None,
    needs: Needs | None = None,
    **environment: str,
) -> list[ProbeResult]:
    """What the doctor says of the profile that was written for ``needs``, with keys changed by hand."""
    profile = written(tmp_path, site, draft_profile(site, needs or needs_of(campaign), PLAIN))
    content = {**profile.content, **(changes or {})}
    file = {**profile.partition_file, "nodes_reach_internet": content.pop("network", "yes")}
    return list(compare_profile(Profile(Path("profiles/site/config.yaml"), content, file), site, campaign, environment))


@pytest.mark.parametrize("gpu", [0, 1])
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"one-partition"}))
def test_what_was_written_has_no_contradiction(tmp_path: Path, name: str, gpu: int) -> None:
    if name == "no-accounting" and gpu:
        return
    (found,) = compared(tmp_path, site_of(name), campaign_of(sandbox={"gpu": gpu}))
    assert found.status == "ok", found


def of_a_run_says(**values: Any) -> dict[str, Any]:
    """The profile's own table."""
    return {"set-resources": {"run_agent": values}}


FOUR_HOURS = {"limits": {"time_limit_s": 14_400}}
ON_SMALL = {"slurm_account": "project_2001234", "mem_mb": 4000}
CONTRADICTIONS = {
    "time": ("mig", FOUR_HOURS, of_a_run_says(runtime=90), {}, "FAIL time limit of 240"),
    "memory": ("mig", {}, of_a_run_says(mem_mb=32_000), {}, "FAIL 32000 MiB are less"),
    "executor": ("mig", {}, {"executor": "slurm"}, {}, "warn every step a job"),
    "jobs": ("qos-limits", {}, {"jobs": 200}, {}, "FAIL 200 is above the 128 that QOS normal"),
    "export": ("mig", {}, {}, {"SBATCH_EXPORT": "NONE"}, "FAIL do not inherit the keys"),
    "export of a job": ("mig", {}, {}, {"SLURM_EXPORT_ENV": "NONE"}, "FAIL do not inherit the keys"),
    "export of the profile": (
        *("mig", {}, {"default-resources": ON_SMALL | {"slurm_extra": "--export=NONE"}}, {}),
        "FAIL slurm_extra has --export",
    ),
    "no way out": ("mig", {}, {"network": "no"}, {}, "FAIL nodes reach no internet"),
    "way out unknown": ("mig", {}, {"network": "unknown"}, {}, "warn not known"),
    "sealed": ("mig", {"sandbox": {"network": "sealed"}}, {"network": "no"}, {}, "ok nothing contradicts"),
    "partition without GPUs": (
        *("mig", {"sandbox": {"gpu": 1}}, of_a_run_says(slurm_partition="small"), {}),
        "FAIL partition small has no GPUs",
    ),
    "partition that is down": ("many-partitions", {}, of_a_run_says(slurm_partition="amd"), {}, "FAIL amd is not up"),
    "partition that is not there": ("mig", {}, of_a_run_says(slurm_partition="gone"), {}, "FAIL gone is not up"),
    "account": (
        "mig",
        {},
        {"default-resources": ON_SMALL | {"slurm_account": "a"}},
        {},
        "FAIL does not take account a",
    ),
    "preempted without requeue": (
        *("preemptible-partition", {}, of_a_run_says(slurm_partition="scavenge"), {}),
        "warn scavenge preempts jobs",
    ),
    "above all partitions": ("gpu-types", {"limits": {"time_limit_s": 400_000}}, {}, {}, "FAIL no partition of"),
    "GPU asked for since": ("mig", {"sandbox": {"gpu": 1}}, {}, {}, "FAIL takes 90 min, 63936 MiB, 8 CPUs, 1 × GPU"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions(tmp_path: Path, name: str) -> None:
    """Of a profile that was written for the campaign as it was without GPUs, or changed by hand since."""
    site, campaign, changes, environment, expected = CONTRADICTIONS[name]
    found = compared(tmp_path, site_of(site), campaign_of(**campaign), changes, needs=RUN, **environment)
    status, _, words = expected.partition(" ")
    assert status in {each.status for each in found if words in each.message}, found
    assert all(each.fix for each in found if each.status != "ok")
