"""The demo through a real Slurm of four nodes with the shipped profile: an unprivileged user, agents in Apptainer."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import ROOT, Project, give_to_stranger
from demo_scores import RANKING, assert_demo_scores, exact_scores, read_table
from killing import Requests
from unprivileged import USER

from automedbench_rehearsal.model_server.server import ScriptedServer

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]

SLURM = ROOT / "tests" / "setup" / "slurm.sh"
CELL = "bccd-det-task/lite/r1"
DEMO = ("--configfile", "demo/config.yaml", "demo/apptainer.yaml")
# What the test machine needs otherwise: it has few cores, and nobody waits half a minute for each status.
QUICK = (
    *("--jobs", "10", "--latency-wait", "10", "--max-jobs-per-timespan", "50/1s"),
    *("--seconds-between-status-checks", "2", "--slurm-init-seconds-before-status-checks", "1"),
)
# As large on paper as the shipped profile asks for: five agents with a GPU, 8 CPUs and 64 GB each, and small steps.
PAPER = ("--nodes", "4", "--cpus", "64", "--memory-mb", "400000", "--gpus", "2")
# With GPUs the profile asks as `sandbox.gpu` would; the cards are on paper, so the sandbox itself asks for none.
GPUS_OFF = "slurm_partition: cpu # for example gpu"

SLEEPER = """
- content: I sleep.
  calls:
    - {tool: execute_code, language: bash, code: "sleep 12.375; echo awake"}
"""

# In place of vLLM: a scripted model on all addresses, which takes what the job gives to `vllm serve`.
STAND_IN = """
#!/usr/bin/env python3
import os, signal, sys
from automedbench_rehearsal.model_server.http import HttpServer
from automedbench_rehearsal.model_server.server import ScriptedServer
from pathlib import Path

bind = HttpServer.server_bind

def bind_everywhere(server):
    server.server_address = (option("--host"), server.server_address[1])
    bind(server)

def option(name):
    return sys.argv[sys.argv.index(name) + 1]

HttpServer.server_bind = bind_everywhere
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
assert sys.argv[1:3] == ["serve", "hub/my-model"] and option("--tool-call-parser") == "hermes", sys.argv
script = Path(__file__).with_name("script.yaml")
name, keys = option("--served-model-name"), [os.environ["VLLM_API_KEY"]]
with ScriptedServer({name: script}, port=int(option("--port")), keys=keys):
    signal.pause()
"""
# In front of the step that runs agents: two harmless devices for cards, and a made-up driver.
MADE_UP_CARDS = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, {benchmarks!r})
from gpu_check import rehearse
folder = Path(tempfile.mkdtemp(dir={place!r}))
folder.chmod(0o755)
rehearse(folder)
"""
SERVED = """
agents:
  served:
    {provider: openai, model: my-model, endpoint_file: results/served/my-model.txt, api_key_env: MY_MODEL_API_KEY}
"""


class Job(NamedTuple):
    """A job as squeue shows it."""

    number: str
    partition: str
    user: str
    state: str
    comment: str

    @property
    def rule(self) -> str:
        """The rule that the executor wrote into the comment."""
        return self.comment.removeprefix("rule_").split("_wildcards_")[0]


@dataclass(frozen=True)
class Cluster:
    """A running Slurm and the clone that submits to it."""

    project: Project
    accounting: str

    def snakemake(self, *options: str, profile: str = "slurm") -> subprocess.CompletedProcess[str]:
        """Run the demo's workflow with a shipped profile."""
        return self.project.snakemake("--profile", profile, *DEMO, *QUICK, *options, timeout=600)

    def running(self) -> list[str]:
        """Numbers of the jobs that run an agent."""
        return [job.number for job in self.queue() if job.state == "RUNNING" and job.rule == "run_agent"]

    def queue(self) -> list[Job]:
        """Jobs of the last hour, finished ones too."""
        lines = subprocess.run(
            ["squeue", "--noheader", "--states=all", "--format=%i|%P|%u|%T|%k"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.splitlines()
        return [Job(*line.split("|")) for line in lines]


@dataclass
class Watch:
    """Looks at the queue until it is told to stop; keeps every job in every state that was seen."""

    cluster: Cluster
    seen: set[Job] = field(default_factory=set)

    def __enter__(self) -> Watch:
        self._before = {job.number for job in self.cluster.queue()}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.3):
            self.seen |= {job for job in self.cluster.queue() if job.number not in self._before}


@dataclass(frozen=True)
class Finished:
    """The demo matrix after one call of Snakemake."""

    cluster: Cluster
    output: str
    jobs: frozenset[Job]

    def numbers(self, rule: str) -> set[str]:
        """Jobs of a rule."""
        return {job.number for job in self.jobs if job.rule == rule}


# The whole demo runs once with every change, with accounting; without it by night. What fails or is cancelled, and is
# then seen by squeue alone, is tried with every change.
@pytest.fixture(scope="module", params=["slurmdbd", pytest.param("none", marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest, container_stranger: Project) -> Iterator[Cluster]:
    """A Slurm of our own, stopped afterwards whatever happens."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a Slurm (tests/setup/slurm.sh)")
    programs = ("slurmctld", "slurmd", "munged", *(("slurmdbd", "mariadbd") if request.param == "slurmdbd" else ()))
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: run tests/setup/slurm.sh up --accounting {request.param}")
    profile = container_stranger.path / "profiles/slurm/config.yaml"
    shipped = profile.read_text()
    assert GPUS_OFF in shipped
    environment = {name: value for name, value in container_stranger.environment.items() if name != "SLURM_CONF"}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SLURM_CONF")  # all other tests do without (tests/conftest.py)
        try:
            profile.write_text(shipped.replace(GPUS_OFF, "gpu: 1\n    slurm_partition: gpu #"))
            setup("up", "--accounting", request.param, *PAPER)
            if request.param == "slurmdbd":
                setup("user", USER)
            yield Cluster(replace(container_stranger, environment=environment), request.param)
        finally:
            profile.write_text(shipped)
            setup("down")


def setup(*words: str) -> None:
    done = subprocess.run(
        ["bash", str(SLURM), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
    )
    if "belongs to another Slurm" in done.stderr:
        pytest.skip("this machine has a Slurm already, which is left alone")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def matrix(cluster: Cluster) -> Finished:
    """The whole demo, once per kind of cluster; where there is accounting, three jobs may be in the queue at a time."""
    cluster.project.run("make", "clean")
    limited = cluster.accounting == "slurmdbd"
    with Watch(cluster) as watch, at_most_jobs(3) if limited else contextlib.nullcontext():
        done = cluster.snakemake()
    assert done.returncode == 0, done.stdout[-5000:]
    assert ("Slurm takes no more jobs for now" in done.stdout) == limited
    return Finished(cluster, done.stdout, frozenset(watch.seen))


@contextlib.contextmanager
def at_most_jobs(count: int) -> Iterator[None]:
    """The user's limit of jobs in the queue; sbatch refuses more."""

    def limit(value: int) -> None:
        words = ("sacctmgr", "--immediate", "--quiet", "modify", "user", USER, "set", f"maxsubmitjobs={value}")
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    limit(count)
    try:
        yield
    finally:
        limit(-1)


def test_scores_are_those_of_the_demo(matrix: Finished) -> None:
    results = matrix.cluster.project.path / "results/demo"
    assert_demo_scores(results)
    assert {row["sandbox"] for row in read_table(results, "overall")} == {"apptainer/sealed"}
    assert (results / "leaderboard/index.html").is_file()


def test_a_run_takes_two_jobs_of_the_user(matrix: Finished) -> None:
    """One for the agent; one for all that follows, which finished runs may share."""
    count = {rule: len(matrix.numbers(rule)) for rule in {job.rule for job in matrix.jobs}}
    scoring = count.pop("collect_submission")
    assert count == {"run_agent": len(RANKING), "stage_task": 1}
    assert 1 <= scoring <= len(RANKING)
    assert {job.user for job in matrix.jobs} == {USER}
    running = {job.comment for job in matrix.jobs if job.rule == "run_agent" and job.state == "RUNNING"}
    assert running == {f"rule_run_agent_wildcards_{agent}_bccd-det-task_lite_1" for agent in RANKING}


def test_agents_get_nodes_with_gpus_and_scorers_do_not(matrix: Finished) -> None:
    """Cards themselves are counted where there is accounting (``test_jobs_are_accounted``)."""
    places = {(job.rule == "run_agent", job.partition) for job in matrix.jobs}
    assert places == {(True, "gpu"), (False, "cpu")}


def test_jobs_are_accounted(matrix: Finished) -> None:
    if matrix.cluster.accounting == "none":
        assert "AccountingStorageType=accounting_storage/none" in Path("/etc/slurm/slurm.conf").read_text()
        return
    numbers = {job.number for job in matrix.jobs}
    wait_for("sacct to know every job", lambda: {row[0] for row in accounted(numbers)} == numbers)
    rows = accounted(numbers)
    assert {(user, account, state) for _, user, account, state, _ in rows} == {(USER, "bench", "COMPLETED")}
    with_gpu = {number for number, *_, resources in rows if "gres/gpu=1" in resources}
    assert with_gpu == matrix.numbers("run_agent")


def accounted(numbers: set[str]) -> list[list[str]]:
    lines = subprocess.run(
        ["sacct", "-nPX", "-j", ",".join(sorted(numbers)), "--format=JobID,User,Account,State,AllocTRES"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [line.split("|") for line in lines]


def test_second_call_does_nothing(matrix: Finished) -> None:
    done = matrix.cluster.snakemake()
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Nothing to be done" in done.stdout


@pytest.mark.parametrize("cluster", ["none"], indirect=True)
def test_failed_job_is_reported_and_repeated_by_the_next_call(cluster: Cluster) -> None:
    run = Path(f"results-broken/runs/crasher/{CELL}")
    broken = cluster.project.path / "build/broken"
    broken.mkdir(parents=True, exist_ok=True)
    for name in ("light.sif", "scorer.sif"):
        (broken / name).write_text("not an image")
        shutil.copy(cluster.project.path / "images" / Path(name).with_suffix(".json"), broken)
    shutil.rmtree(cluster.project.path / "results-broken", ignore_errors=True)
    give_to_stranger(cluster.project, cluster.project.path / "build")

    failed = cluster.snakemake(
        str(run / "run.json"), "--config", "results=results-broken", 'containers={"folder": "build/broken"}'
    )
    assert failed.returncode != 0
    assert "could not be started" in failed.stdout  # the step's own log
    assert attempts(cluster, run) == {"0001": "infrastructure"}
    assert not (cluster.project.path / run / "run.json").exists()

    repeated = cluster.snakemake(str(run / "run.json"), "--config", "results=results-broken")
    assert repeated.returncode == 0, repeated.stdout[-3000:]
    assert attempts(cluster, run) == {"0001": "infrastructure", "0002": "sealed"}


@dataclass(frozen=True)
class Asleep:
    """A run whose agent's code sleeps, and the call of Snakemake that waits for it."""

    cluster: Cluster
    run: Path
    profile: str

    def call(self) -> subprocess.CompletedProcess[str]:
        options = (str(self.run / "score.json"), "--config", f"results={self.run.parts[0]}")
        matrix = ("agents_file=build/sleeper/agents.yaml", 'matrix={"agents": ["sleeper"]}')
        return self.cluster.snakemake(*options, *matrix, profile=self.profile)

    def wait(self) -> str:
        """Number of the job, once the agent's code runs in it."""
        wait_for("the agent's code to run", lambda: processes("12.375"), seconds=120)
        return one(self.cluster.running())

    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.cluster.project.path / self.run / "run.json").read_text())
        return record

    def head(self) -> int:
        """Process of the newest call."""
        return max(int(each) for each in processes(f"results={self.run.parts[0]}") if is_snakemake(int(each)))


@pytest.fixture
def asleep(cluster: Cluster, request: pytest.FixtureRequest) -> Asleep:
    name = request.node.originalname.removeprefix("test_")
    folder = cluster.project.path / "build/sleeper"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "script.yaml").write_text(SLEEPER)
    (folder / "agents.yaml").write_text("agents: {sleeper: {provider: scripted, script: build/sleeper/script.yaml}}")
    shutil.rmtree(cluster.project.path / f"results-{name}", ignore_errors=True)
    write_requeuing_profile(cluster.project)
    give_to_stranger(cluster.project, cluster.project.path / "build")
    return Asleep(cluster, Path(f"results-{name}/runs/sleeper/{CELL}"), getattr(request, "param", "slurm"))


def write_requeuing_profile(project: Project) -> None:
    (profile := project.path / "build/requeuing/config.yaml").parent.mkdir(parents=True, exist_ok=True)
    shipped = (ROOT / "profiles/slurm/config.yaml").read_text()
    profile.write_text(shipped.replace("slurm-no-requeue", "slurm-requeue").replace(": cpu", ": spare"))


@pytest.mark.parametrize("cluster", ["none"], indirect=True)
def test_cancelled_run_goes_on_with_the_next_call(asleep: Asleep) -> None:
    """scancel ends it; then a call is killed, and the next one waits for the run that is left without submitting it."""
    with ThreadPoolExecutor() as pool:
        call = pool.submit(asleep.call)
        job = asleep.wait()
        assert asleep.cluster.project.run("scancel", job).returncode == 0
        cancelled = call.result()
        assert cancelled.returncode != 0
        assert f"Slurm job {job} ended as CANCELLED" in cancelled.stdout
        assert attempts(asleep.cluster, asleep.run) == {"0001": "cancelled"}
        lease = asleep.cluster.project.path / asleep.run / "lease.json"
        assert not lease.exists()
        assert processes("12.375") == []

        killed = pool.submit(asleep.call)
        job = asleep.wait()
        os.kill(asleep.head(), signal.SIGKILL)
        killed.result()
        assert asleep.cluster.project.run("snakemake", "--unlock").returncode == 0
        after = pool.submit(asleep.call)
        with Watch(asleep.cluster) as watch:
            wait_for("the run to end", lambda: not lease.exists(), seconds=60)
            assert {seen.number for seen in watch.seen if seen.rule == "run_agent"} <= {job}
        done = after.result()
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"Slurm job {job}" in done.stdout and "submitted when that ends" in done.stdout
    assert attempts(asleep.cluster, asleep.run) == {"0001": "sealed"}
    assert asleep.record()["resumes"] == 1


@pytest.mark.parametrize("cluster", ["none"], indirect=True)
@pytest.mark.parametrize("asleep", ["build/requeuing"], indirect=True)
def test_requeued_runs_go_on_by_themselves(asleep: Asleep) -> None:
    """Slurm begins the job again, twice, while one call waits; then that call is asked to end, and takes it along."""
    with ThreadPoolExecutor() as pool:
        call = pool.submit(asleep.call)
        for _ in range(2):
            job = asleep.wait()
            assert asleep.cluster.project.run("scontrol", "requeue", job).returncode == 0
            wait_for("the agent's code to end", lambda: processes("12.375") == [])
            begin_now(asleep.cluster, job)
        asleep.wait()
        os.kill(asleep.head(), signal.SIGTERM)
        assert call.result().returncode != 0
        wait_for("the job to end", lambda: asleep.cluster.running() == [])
        assert set(attempts(asleep.cluster, asleep.run)) == {"0001"}
        done = asleep.call()
    assert done.returncode == 0, done.stdout[-3000:]
    assert attempts(asleep.cluster, asleep.run) == {"0001": "sealed"}
    assert asleep.record()["resumes"] == 3


@pytest.fixture
def cards(cluster: Cluster) -> Iterator[None]:
    """Cards that exist nowhere, on every node, for the runs of the clone."""
    project, script = cluster.project, cluster.project.path / "scripts/run_agent.py"
    (place := project.path / "build/drivers").mkdir(parents=True, exist_ok=True)
    give_to_stranger(project, project.path / "build")
    before = script.read_text()
    head = "from __future__ import annotations\n"
    made_up = MADE_UP_CARDS.format(benchmarks=str(project.path / "benchmarks"), place=str(place))
    script.write_text(before.replace(head, head + made_up, 1))
    yield
    script.write_text(before)


@pytest.mark.long
@pytest.mark.parametrize("cluster", ["slurmdbd"], indirect=True)
@pytest.mark.usefixtures("cards")
def test_runs_that_share_a_card_share_a_job(cluster: Cluster) -> None:
    """Five runs, four at a time, in a job with one card, a run's CPUs and four times its memory; scores as alone."""
    found: dict[int, list[list[str]]] = {}
    for share in (1, 4):
        results = cluster.project.path / f"results-share-{share}"
        shutil.rmtree(results, ignore_errors=True)
        with Watch(cluster) as watch:
            settings = f"results={results.name}", f"sandbox={{gpu: 1, gpu_share: {share}}}"
            done = cluster.snakemake(
                "--jobs", str(2 * share), "--config", *settings
            )  # all nodes have the same two cards
        assert done.returncode == 0, done.stdout[-5000:]
        numbers = {job.number for job in watch.seen if job.rule == "run_agent"}
        wait_for("sacct to know every job", lambda: {row[0] for row in accounted(numbers)} == numbers)  # noqa: B023
        found[share] = accounted(numbers)
    memory = {share: {mebibytes(row[-1]) for row in rows} for share, rows in found.items()}
    assert [len(rows) for rows in found.values()] == [5, 1]
    assert memory[4] == {4 * each for each in memory[1]}
    for rows in found.values():
        assert all("cpu=8," in row[-1] and "gres/gpu=1" in row[-1] for row in rows)
    alone, shared = (
        list(map(without_cards, exact_scores(cluster.project.path / f"results-share-{k}"))) for k in (1, 4)
    )
    assert shared == alone
    runs = cluster.project.path.glob("results-share-4/runs/*/*/*/*/run.json")
    turns = [json.loads(path.read_text())["used"] for path in runs]
    assert all(used["gpu_lease_s"] > 0 for used in turns)


def mebibytes(resources: str) -> int:
    """Memory in an AllocTRES of accounting."""
    ((number, unit),) = re.findall(r"mem=([\d.]+)([MG])", resources)
    return round(float(number) * {"M": 1, "G": 1024}[unit])


def without_cards(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("gpu_")}


@dataclass(frozen=True)
class Paced:
    """Paid agents, each with a model of its own, whose code sleeps, and the turns that their models were asked for."""

    cluster: Cluster
    asked: Requests
    agents: tuple[str, ...]
    results: str

    def call(self, *options: str, profile: str = "slurm") -> subprocess.CompletedProcess[str]:
        settings = f"results={self.results}", "agents_file=build/paced/agents.yaml", "sandbox={gpu: 1, gpu_share: 2}"
        matrix = "matrix=" + json.dumps({"agents": self.agents})
        return self.cluster.snakemake("--config", *settings, matrix, *options, profile=profile)

    def folder(self, agent: str) -> Path:
        return self.cluster.project.path / self.results / f"runs/{agent}/{CELL}"

    def sealed(self) -> list[str]:
        return [each for each in self.agents if list(self.folder(each).glob("attempts/*/run.json"))]

    def holders(self) -> list[str]:
        """Runs whose newest attempt has the card, or had it when it was killed."""
        newest = {each: max(self.folder(each).glob("attempts/*"), default=Path()) for each in self.agents}
        return [each for each, attempt in newest.items() if (attempt / "workspace/held").exists()]

    def records(self, calls: int) -> dict[str, dict[str, Any]]:
        """The runs' records by agent. None has a second attempt, and no model was asked for a turn twice."""
        found = [attempts(self.cluster, self.folder(each)) for each in self.agents]
        assert found == [{"0001": "sealed"}] * len(self.agents)
        turns = [*range(1, calls + 3)]  # in the last two it says that it is done
        assert self.asked.turns == dict.fromkeys(self.agents, turns)
        return {each: json.loads((self.folder(each) / "run.json").read_text()) for each in self.agents}


@contextlib.contextmanager
def paced(cluster: Cluster, agents: str, seconds: float, calls: int) -> Iterator[Paced]:
    """Agents whose code sleeps for so long, so many times."""
    project, asked, place = cluster.project, Requests(), cluster.project.path / "build/paced"
    place.mkdir(parents=True, exist_ok=True)
    code = f"exec 3</dev/fu*; touch held; sleep {seconds}; rm held"  # the made-up card: full or fuse
    call = {"tool": "execute_code", "language": "bash", "code": code}
    (place / "script.yaml").write_text(json.dumps([{"content": "I sleep.", "calls": [call]}] * calls))
    shutil.rmtree(project.path / f"results-{agents}", ignore_errors=True)
    with ScriptedServer(dict.fromkeys(agents, place / "script.yaml"), keep=False, record=asked) as server:
        pricing = {"input": "10", "output": "100", "as_of": "2026-01-01", "source": "made up"}
        served = {"provider": "openai", "base_url": server.url, "api_key_env": "PACED_KEY", "pricing": pricing}
        entries = {each: {**served, "model": each} for each in agents}
        (place / "agents.yaml").write_text(json.dumps({"agents": entries}))
        write_requeuing_profile(project)
        give_to_stranger(project, place.parent)
        keyed = replace(project, environment={**project.environment, "PACED_KEY": "sk-" + 20 * "4a"})
        yield Paced(replace(cluster, project=keyed), asked, tuple(agents), f"results-{agents}")


@pytest.mark.long
@pytest.mark.parametrize("cluster", ["none"], indirect=True)
@pytest.mark.usefixtures("cards")
def test_kills_among_runs_that_share_a_card(cluster: Cluster) -> None:
    """Two at a time. The driver of the holder is killed: the next has the card, and a third run begins. Then the job
    is cancelled, and the next call goes on with what is there."""
    with paced(cluster, "klm", 12.375, 1) as runs, ThreadPoolExecutor() as pool:
        call = pool.submit(runs.call)
        wait_for("a run to have the card", lambda: call.done() or runs.holders(), seconds=120)
        first, job = one(runs.holders()), one(cluster.running())
        os.kill(json.loads((runs.folder(first) / "lease.json").read_text())["pid"], signal.SIGKILL)
        wait_for("another to have it", lambda: call.done() or set(runs.holders()) - {first}, seconds=60)
        second = one(sorted(set(runs.holders()) - {first}))
        third = one(sorted({*runs.agents} - {first, second}))
        wait_for("the third to have it", lambda: runs.sealed() == [second] and third in runs.holders(), seconds=60)
        assert cluster.running() == [job]
        assert cluster.project.run("scancel", job).returncode == 0
        assert call.result().returncode != 0
        assert runs.sealed() == [second]
        done = runs.call()
        assert done.returncode == 0, done.stdout[-3000:]
        runs.records(1)


@pytest.mark.long
@pytest.mark.parametrize("cluster", ["none"], indirect=True)
@pytest.mark.usefixtures("cards")
def test_requeued_runs_that_share_a_card_go_on_with_another(cluster: Cluster) -> None:
    """Three runs, two at a time; when one has ended, Slurm begins their job again, and the card of before is taken."""
    with paced(cluster, "abc", 6.125, 3) as runs, ThreadPoolExecutor() as pool, contextlib.ExitStack() as taken:
        call = pool.submit(runs.call, profile="build/requeuing")
        wait_for("a run to end", lambda: call.done() or (runs.sealed() and runs.holders()), seconds=240)
        ended, holder, job = runs.sealed(), one(runs.holders()), one(cluster.running())
        assert cluster.project.run("scontrol", "requeue", job).returncode == 0
        wait_for("the agents' code to end", lambda: processes("6.125") == [])
        blocker = ("sbatch", "--parsable", "--partition=gpu", "--gpus=1", "--mem=100", "--wrap=sleep 300")
        taken.callback(cluster.project.run, "scancel", cluster.project.run(*blocker).stdout.strip())
        begin_now(cluster, job)
        assert call.result().returncode == 0, call.result().stdout[-3000:]
        found = {each: (record["resumes"], record["used"]["gpu_models"]) for each, record in runs.records(3).items()}
        assert [found[each] for each in ended] == [(0, ["made-up card full"])] * len(ended)
        assert found[holder] == (1, ["made-up card full", "made-up card fuse"])
        assert all(models[-1] == "made-up card fuse" for each, (_, models) in found.items() if each not in ended)


@pytest.mark.long
@pytest.mark.parametrize("cluster", ["none"], indirect=True)
@pytest.mark.usefixtures("cards")
def test_runs_that_share_a_card_go_on_after_a_timeout(cluster: Cluster) -> None:
    """Four runs, two at a time: a job of a minute begins none in its second half, and another job takes those."""
    with paced(cluster, "abcd", 14.125, 4) as runs, Watch(cluster) as watch:
        minute = ("run_agent:runtime=1", "run_agent:gpu=1", "run_agent:slurm_partition=gpu")
        late = runs.call("--set-resources", *minute, "--keep-going")
        assert late.returncode != 0
        assert [late.stdout.count(f"Slurm job {job} ended as TIMEOUT") for job in sorted(numbers(watch))] == [2, 2]
        assert runs.sealed() == []
        done = runs.call()
        assert done.returncode == 0, done.stdout[-3000:]
        assert [record["resumes"] for record in runs.records(4).values()] == [1, 1, 1, 1]


def numbers(watch: Watch) -> set[str]:
    return {job.number for job in watch.seen if job.rule == "run_agent"}


def begin_now(cluster: Cluster, job: str) -> None:
    """Slurm would wait for two minutes before it begins a requeued job."""
    wait_for("the job to be in the queue", lambda: ("PENDING", job) in {(j.state, j.number) for j in cluster.queue()})
    time.sleep(2)  # what is begun in the second of its end, slurmd takes for what it has just ended, and kills
    assert cluster.project.run("scontrol", "update", f"JobId={job}", "StartTime=now").returncode == 0


def is_snakemake(process: int) -> bool:
    return b"bin/snakemake" in Path(f"/proc/{process}/cmdline").read_bytes()


def one(items: list[Any]) -> Any:
    assert len(items) == 1, items
    return items[0]


@pytest.mark.parametrize("cluster", ["none"], indirect=True)
def test_own_server_is_found_and_found_again_after_preemption(cluster: Cluster) -> None:
    """The shipped job serves a model; while an agent's code runs it is put back into the queue, and comes back."""
    run, project = Path(f"results-served/runs/served/{CELL}"), cluster.project
    folder, served = project.path / "build/served", project.path / "results/served/my-model.txt"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "script.yaml").write_text(SLEEPER)
    (folder / "agents.yaml").write_text(SERVED)
    (folder / "vllm").write_text(STAND_IN.lstrip())
    (folder / "vllm").chmod(0o755)
    for place in (project.path / "results-served", served.parent):
        shutil.rmtree(place, ignore_errors=True)
    give_to_stranger(project, project.path / "build")
    environment = {"MY_MODEL_API_KEY": "sk-canary-of-a-served-model", "PATH": f"{folder}:{project.environment['PATH']}"}
    submitted = project.run(
        *("sbatch", "--parsable", "profiles/slurm/serve.sbatch", "hub/my-model", "--tool-call-parser", "hermes"),
        **environment,
    )
    assert submitted.returncode == 0, submitted.stdout
    job = submitted.stdout.strip()
    try:
        with ThreadPoolExecutor() as pool:
            call: Future[subprocess.CompletedProcess[str]] = pool.submit(
                project.snakemake,
                *("--profile", "slurm", *DEMO, *QUICK, str(run / "run.json"), "--config", "results=results-served"),
                *("agents_file=build/served/agents.yaml", 'matrix={"agents": ["served"]}'),
                timeout=300,
                **environment,
            )
            wait_for("the agent's code to run", lambda: call.done() or processes("12.375"), seconds=240)
            first = urls_in(served)
            assert len(first) == 1, call.result().stdout[-3000:]
            assert project.run("scontrol", "requeue", job).returncode == 0
            wait_for("the URL to be removed", lambda: urls_in(served) == [])
            begin_now(cluster, job)
            done = call.result()
        assert done.returncode == 0, done.stdout[-3000:]
        assert len(urls_in(served)) == 1 and urls_in(served) != first
    finally:
        project.run("scancel", job)
    wait_for("the URL to be removed", lambda: urls_in(served) == [])
    assert attempts(cluster, run) == {"0001": "sealed"}
    events = [json.loads(line) for line in (project.path / run / "log/events.jsonl").read_text().splitlines()]
    assert [event["class"] for event in events if event["type"] == "api_attempt"][:3] == ["ok", "network", "ok"]
    assert json.loads((project.path / run / "run.json").read_text())["outcome"] == "stopped"


def urls_in(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def attempts(cluster: Cluster, run: Path) -> dict[str, str]:
    """How each attempt of a run ended: sealed, or the kind of its failure."""
    endings = {}
    for folder in sorted((cluster.project.path / run / "attempts").iterdir()):
        failure = folder / "failure-0001.json"
        kind = json.loads(failure.read_text())["kind"] if failure.is_file() else "unfinished"
        endings[folder.name] = "sealed" if (folder / "run.json").is_file() else kind
    return endings


def processes(word: str) -> list[str]:
    """Processes with this word among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if word.encode() in path.read_bytes().split(b"\0") else []
        except OSError:
            continue
    return found


def wait_for(what: str, condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.2)
