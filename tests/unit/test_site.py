"""A profile for a cluster: what recorded sites lead to, derived by hand from their files (tests/sites/README.md)."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.cli import get_profile_dir, parse_args

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.records import Used
from automedbench.campaign.load import Campaign
from automedbench.commands import main
from automedbench.commands._machine.draft import ProfileDraft, draft_profile, profile_text, write_profile
from automedbench.commands._machine.placement import Needs, Place, SiteOptions
from automedbench.commands._machine.profile import Profile
from automedbench.commands._machine.slurm import Site, gpus, minutes, parse, read_site
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

TAKES = {
    "gpu-types": {name: {("jsmith123_gpu", "qos_gpu")} for name in ("a100", "l40s", "h100", "nvl")},
    "modules": {name: {("def-doe_gpu", "")} for name in ("gpubase_bygpu_b1", "gpubase_bygpu_b2")},
    "preemptible-qos": {
        "compute": {("stf", ""), ("stf", "stf-ckpt")},
        "gpu-a40": {("stf", "stf-gpu-a40")},
        "gpu-l40s": {("stf", "other-gpu")},
        "ckpt": {("stf", "stf-ckpt")},
    },
}
"""Site and partition → accounts and QOS that it takes, by its AllowQos and DenyAccounts; others take any."""


def texts_of(name: str) -> dict[str, str]:
    return {path.stem: path.read_text("utf-8").strip() for path in (SITES / name).glob("*.txt")}


def site_of(name: str) -> Site:
    return parse(texts_of(name))


def answer(name: str, place: Place) -> str:
    """What Slurm says of a place, in its words: node sizes and TAKES; test_first_slurm.py asks a real one."""
    needs, taken = place.needs, TAKES.get(name, {}).get(place.partition.name)
    if taken is not None and (place.account, place.qos) not in taken:
        return "Invalid qos specification"
    for kind in place.partition.kinds:
        held = kind.gpus.get(needs.model, 0) if needs.model else sum(kind.gpus.values())
        if kind.memory_mb >= needs.memory_mb and kind.cpus >= needs.cpus and held >= needs.gpu:
            return ""
    return "Requested node configuration is not available"


def draft_of(name: str, needs: Needs = RUN, options: SiteOptions = PLAIN) -> ProfileDraft:
    return draft_profile(site_of(name), needs, options, functools.partial(answer, name))


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
    warned: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        model = f" {self.needs.model}" if self.needs.model else ""
        return f"{self.site}: {self.needs.gpu} GPU{model}{' preemptible' * self.asked.preemptible}"


ROWS = [
    # Nodes have 31 000 MiB; nothing has a higher tier than the one partition, so PreemptMode=REQUEUE preempts nothing.
    Row("one-partition", SMALL, small="debug", run="debug"),
    # The default; `all` and `condo` are below it (tiers 5 and 1 against 10) and preempted.
    Row("many-partitions", small="cmp", run="cmp", account="users"),
    Row("many-partitions", ON_GPU, small="cmp", run="gpu", account="users"),
    # Of the partitions that are preempted, `condo` has an A100.
    Row("many-partitions", Needs(90, 63_936, 8, 1, "a100"), PREEMPTIBLE, small="cmp", run="condo", account="users"),
    Row("gpu-types", small="cpu", run="cpu", account="jsmith123"),
    # 16 nodes each in h100 and nvl, by name h100; GPU partitions deny the default account and take qos_gpu alone.
    Row(
        "gpu-types",
        ON_GPU,
        small="cpu",
        run="h100",
        account="jsmith123",
        run_account="jsmith123_gpu",
        run_qos="qos_gpu",
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
    ),
    # `medium` gives whole nodes, `interactive` is for people; no default account: the first by name.
    Row("mig", small="small", run="small", account="project_2001234"),
    # gputest ends after 15 min, gpumedium gives whole nodes, gpuslice only slices.
    Row(
        "mig",
        ON_GPU,
        small="small",
        run="gpusmall",
        account="project_2001234",
        warned=("a100, a100_1g.5gb: runs compare on one of them",),
    ),
    Row("mig", Needs(90, 63_936, 8, 1, "a100_1g.5gb"), small="small", run="gpuslice", account="project_2001234"),
    # Four hours would end a run of five.
    Row("no-accounting", small="short", run="short"),
    Row("no-accounting", Needs(330, 63_936, 8), small="normal", run="normal"),
    Row("no-cgroups", small="secondary", run="secondary", warned=("whole nodes",)),
    Row("no-cgroups", ON_GPU, small="secondary", run="stat", warned=("whole nodes",)),
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
    # 48 CPUs for 8 H200, and 32 for 4 A100.
    Row(
        "preemptible-partition",
        ON_GPU,
        small="day",
        run="gpu",
        account="pi_doe",
        run_cpus=6,
        warned=("a100, h200: runs compare on one of them",),
    ),
    # 128 nodes of scavenge do not count, as they have no GPUs. 48 CPUs for 8 GPUs.
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
    # 48 CPUs for 8 slices of two kinds.
    Row(
        "modules",
        Needs(270, 63_936, 8, 1, "a100_3g.20gb"),
        small="cpubase_bycore_b1",
        run="gpubase_bygpu_b2",
        account="def-doe_cpu",
        run_account="def-doe_gpu",
        run_cpus=6,
    ),
    Row("qos-limits", small="normal", run="normal", account="users"),
    Row("qos-limits", ON_GPU, small="normal", run="gpu", account="users"),
]


def written(tmp_path: Path, draft: ProfileDraft, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """The profile as its file says."""
    monkeypatch.chdir(ROOT)
    path = tmp_path / "config.yaml"
    path.write_text(profile_text(draft, "profiles/site", "a cluster"))
    return Profile(path, yaml.safe_load(path.read_text()))


def wanted(needs: Needs) -> dict[str, Any]:
    """What the rule run_agent asks for."""
    asked = {"runtime": needs.minutes, "mem_mb": needs.memory_mb, "cpus_per_task": needs.cpus}
    return asked | ({"gpu": needs.gpu} if needs.gpu else {}) | ({"gpu_model": needs.model} if needs.model else {})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_recorded_sites(tmp_path: Path, row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = draft_of(row.site, row.needs, row.asked)
    profile = written(tmp_path, draft, monkeypatch)
    small, run = profile.job("", {}), profile.job("run_agent", wanted(row.needs))
    assert (small["slurm_partition"], run["slurm_partition"]) == (row.small, row.run)
    assert (small.get("slurm_account"), small.get("qos")) == (row.account, None)
    assert (run.get("slurm_account"), run.get("qos")) == (row.run_account or row.account, row.run_qos)
    assert run["cpus_per_task"] == row.run_cpus
    assert profile.content.get("slurm-requeue", False) is row.asked.preemptible
    assert profile.content.get("slurm-no-requeue", False) is not row.asked.preemptible
    assert len(draft.warnings) == len(row.warned), draft.warnings
    assert all(words in text for words, text in zip(row.warned, draft.warnings, strict=True)), draft.warnings


@pytest.mark.parametrize("row", ROWS[3::9], ids=lambda row: row.name)
def test_snakemake_reads_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: Row) -> None:
    written(tmp_path, draft_of(row.site, row.needs, row.asked), monkeypatch)
    options = ["--profile", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["snakemake", *options])
    _, arguments = parse_args(options)
    assert (arguments.executor, arguments.jobs, arguments.local_cores) == ("automedbench-slurm", 200, 2)


@pytest.mark.parametrize(
    ("site", "needs", "asked", "words", "fix"),
    [
        pytest.param("one-partition", RUN, PLAIN, "debug: Requested node configuration", "limits.mem_gb", id="memory"),
        pytest.param(
            "one-partition", SMALL, PREEMPTIBLE, "debug: preempts no jobs", "--preemptible", id="no preempting"
        ),
        pytest.param("no-accounting", ON_GPU, PLAIN, "short: has no GPUs", "sandbox.gpu", id="no GPUs"),
        pytest.param("gpu-types", Needs(90, 1, 1, 1, "a40"), PLAIN, "a100: has a100", "gpu_model", id="unknown type"),
        pytest.param("mig", Needs(12_000, 1, 1), PLAIN, "small: ends jobs after 4320", "time_limit_s", id="wall time"),
        pytest.param("preemptible-qos", RUN, SiteOptions(qos="x"), "compute: Invalid qos", "--qos", id="QOS"),
        pytest.param("mig", RUN, SiteOptions("gone"), "--partition: mahti has no", "medium", id="partition"),
        pytest.param("mig", RUN, SiteOptions(None, "x"), "--run-partition: mahti has no", "medium", id="run partition"),
        pytest.param("many-partitions", ON_GPU, SiteOptions(None, "amd"), "amd: is not up", "sinfo -R", id="down"),
    ],
)
def test_what_a_site_cannot_do_is_refused(site: str, needs: Needs, asked: SiteOptions, words: str, fix: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        draft_of(site, needs, asked)
    text = str(caught.value)
    assert fix in text and len(text.splitlines()) <= 3, text
    assert ("limits.mem_gb" in text) == ("Requested node configuration" in text), text


TINY = {
    "kinds": "cpu|2|2|16000|(null)\nlong|2|64|256000|(null)\nspare|2|64|256000|(null)",
    "partitions": "PartitionName=cpu Default=YES PriorityTier=10 MaxTime=8:00:00\n"
    "PartitionName=long PriorityTier=10\nPartitionName=spare PriorityTier=1 PreemptMode=REQUEUE",
    "config": "ClusterName = tiny\nPreemptType = preempt/partition_prio",
}


def draft_tiny(needs: Needs, options: SiteOptions = PLAIN, **changes: str) -> ProfileDraft:
    return draft_profile(parse(TINY | changes), needs, options, functools.partial(answer, ""))


def test_staging_asks_for_what_its_partition_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of 2 CPUs and 8 hours: two of the four cases at a time, of 4000 MiB each; of 3000 MiB, none."""
    draft = draft_tiny(Needs(90, 8000, 2))
    profile = written(tmp_path, draft, monkeypatch)
    assert profile.content["set-resources"]["stage_task"] == {"runtime": 480, "cpus_per_task": 2, "mem_mb": 8000}
    assert (profile.content["set-threads"], draft.warnings) == ({"stage_task": 2}, [])
    (warning,) = draft_tiny(Needs(90, 2000, 2), kinds="cpu|2|2|3000|(null)").warnings
    assert "cpu takes no job that stages: Requested node" in warning


def test_runs_go_where_the_option_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also runs without GPUs."""
    needs = Needs(90, 8000, 2)
    profile = written(tmp_path, draft_tiny(needs, SiteOptions(run_partition="long")), monkeypatch)
    assert profile.job("", {})["slurm_partition"] == "cpu"
    assert profile.job("run_agent", wanted(needs))["slurm_partition"] == "long"


def test_what_a_person_should_know_of_the_choice() -> None:
    """A default partition that is passed over, whose nodes are drained or which is down, and one that preempts."""
    needs = Needs(90, 8000, 2)
    drained = draft_tiny(needs, states="cpu|drain\ncpu|down*\nlong|idle\nspare|drain\nspare|mix")
    assert "runs: partition long, 90 min, 8000 MiB, 2 CPUs" in drained.messages
    (warning,) = drained.warnings
    assert "the default partition was passed over: cpu has only nodes that are down or drained" in warning
    (warning,) = draft_tiny(needs, partitions=TINY["partitions"].replace("cpu", "cpu State=DOWN")).warnings
    assert "the default partition was passed over: cpu is not up" in warning
    (warning,) = draft_tiny(needs, SiteOptions(partition="spare")).warnings
    assert "spare preempts jobs" in warning and "--preemptible" in warning


def test_an_urgent_partition_is_used_only_by_name() -> None:
    """Beside urgent (tier 100) day (10) can be preempted as well, and stays the usual place; scavenge (1) does not."""
    site = site_of("preemptible-partition")
    day = dataclasses.replace(next(each for each in site.partitions if each.name == "day"), preempt_mode="REQUEUE")
    urgent = dataclasses.replace(day, name="urgent", default=False, tier=100)
    site = dataclasses.replace(
        site, partitions=(urgent, day, *(each for each in site.partitions if "scavenge" in each.name))
    )

    def place_of_runs(options: SiteOptions) -> str:
        draft = draft_profile(site, RUN, options, functools.partial(answer, ""))
        return next(line for line in draft.messages if line.startswith("runs: ")).split()[2]

    assert place_of_runs(PLAIN) == "day,"
    assert place_of_runs(SiteOptions(partition="urgent")) == "urgent,"
    assert place_of_runs(PREEMPTIBLE) == "scavenge,"
    site = dataclasses.replace(site, partitions=(urgent, dataclasses.replace(day, minutes=60)))
    with pytest.raises(ConfigError, match="urgent: takes the place of other users' jobs"):
        place_of_runs(PLAIN)


def test_a_qos_that_preempts_the_usual_one_is_used_only_by_name() -> None:
    """QOS `urgent` comes first in the user's list, and the default one is refused: `gpu` is next."""
    texts = texts_of("qos-limits")
    texts |= {"associations": "users||urgent,normal,gpu|normal", "qos": "normal|\nurgent|normal\ngpu|"}

    def qos_of_runs(options: SiteOptions) -> str:
        draft = draft_profile(parse(texts), RUN, options, lambda place: "" if place.qos else "Invalid qos")
        return next(line for line in draft.messages if line.startswith("runs: ")).split("QOS ")[1].split(",")[0]

    assert (qos_of_runs(PLAIN), qos_of_runs(SiteOptions(qos="urgent"))) == ("gpu", "urgent")


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
        ("(null)", {}),
        ("gpu:4", {"": 4}),
        ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gpu:a100:4(S:0,2),nvme:3600", {"a100": 4}),
        ("gpu:3090:8", {"3090": 8}),
        ("gpu:a100:3(S:0),gpu:a100_1g.5gb:7(S:1)", {"a100": 3, "a100_1g.5gb": 7}),
        ("gpu:nvidia_a100-sxm4-80gb:8(S:1,3,5,7)", {"nvidia_a100-sxm4-80gb": 8}),
        ("mps:100,shard:8", {}),
    ],
)
def test_generic_resources(gres: str, expected: dict[str, int]) -> None:
    assert gpus(gres) == expected


# --- files --------------------------------------------------------------------------------------------------------


def test_a_second_call_keeps_what_was_edited(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    assert write_profile(path, "jobs: 1\n", force=False) == f"{path}: written"
    assert write_profile(path, "jobs: 1\n", force=False) == f"{path}: as it was"
    path.write_text("jobs: 7 # by hand\n")
    assert "kept, as it differs" in write_profile(path, "jobs: 1\n", force=False)
    assert (path.read_text(), path.with_name("config.yaml.new").read_text()) == ("jobs: 7 # by hand\n", "jobs: 1\n")
    assert write_profile(path, "jobs: 1\n", force=True) == f"{path}: written"
    assert path.read_text() == "jobs: 1\n"


@pytest.mark.parametrize("name", NAMES)
def test_every_line_has_its_reason(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = written(tmp_path, draft_of(name, SMALL), monkeypatch).path.read_text().splitlines()
    values = [line for line in lines if line and not line.startswith("#") and not line.endswith(":")]
    assert [line for line in values if "#" not in line] == []
    assert max(map(len, lines)) <= 160


PROGRAMS = {
    "sinfo": "echo 'cpu|2|8|64000|gpu:t4:1'",
    "scontrol": 'case "$2" in config) echo "ClusterName = tiny";; *) echo "PartitionName=cpu State=UP";; esac',
    "sacctmgr": "echo 'You are not running a supported accounting_storage plugin' >&2; exit 1",
    "sbatch": 'echo "$@" >>"$0.asked"; echo "allocation failure: Requested node configuration is not available"; false',
    "apptainer": "echo apptainer version 1.4.0",
}


def test_the_command_reads_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs that answer like those of a cluster; accounting refuses, which is no fault; then so does sbatch."""
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.chdir(ROOT)
    site = read_site()
    (partition,) = site.partitions
    assert (site.cluster, partition.name, partition.models, site.associations) == ("tiny", "cpu", ("t4",), ())
    call = ["site", "--out", str(tmp_path / "out")]
    with pytest.raises(ConfigError, match="cpu: Requested node configuration is not available"):
        main(call)
    asked = "--test-only --partition=cpu --nodes=1 --ntasks=1 --time=90 --mem=63936M --cpus-per-task=8 --wrap=true\n"
    assert (tmp_path / "sbatch.asked").read_text() == asked
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    capsys.readouterr()
    main(call)
    first = capsys.readouterr().out.splitlines()
    main(call)
    second = capsys.readouterr().out.splitlines()
    assert first[2] == "runs: partition cpu, 90 min, 63936 MiB, 8 CPUs"
    assert (first[-2].endswith(": written"), second[-2].endswith(": as it was")) == (True, True)
    assert first[-1].endswith(f"`snakemake --profile {tmp_path / 'out'} -n`")


def test_without_slurm_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDataError, match="on a login node"):
        read_site()


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


def test_a_job_has_the_gpus_of_its_run() -> None:
    needs = Needs.from_resources(run_resources(campaign_of(sandbox={"gpu": 2, "gpu_model": "h100"})))
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
