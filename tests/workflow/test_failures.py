"""When something is wrong or breaks: a short message that says what to do, and nothing is lost or paid twice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from campaigns import (
    AGENTS,
    TASK,
    add_agent,
    copy_of_finished,
    drivers,
    executed,
    fresh_copy,
    log_of,
    only,
    planned,
    run_folder,
    stamps,
    started,
)
from conftest import Project
from waiting import wait_for

from automedbench.base.files import read_record
from automedbench.base.records import Conversation, RunRecord, ScoreRecord

# The agent works until a test puts a file into its workspace.
WAITING = "touch began; until [ -e release ]; do sleep 0.1; done; echo released"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A clean clone: nothing fetched, nothing run."""
    return fresh_copy(tmp_path / "automedbench")


@pytest.fixture
def finished(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return copy_of_finished(tmp_path_factory, tmp_path / "automedbench")


@pytest.fixture
def slow(finished: Project) -> Project:
    """A finished campaign with a sixth agent that waits."""
    add_agent(finished, "slow", WAITING)
    return finished


def message_in(project: Project, log: str) -> list[str]:
    """Lines of a step's log: at most three, without a traceback."""
    text = (project.path / log).read_text()
    lines = [line for line in text.splitlines() if line.strip()]
    assert "Traceback" not in text
    assert 1 <= len(lines) <= 3, text
    return lines


def refused(project: Project, *options: str) -> list[str]:
    """Problems that a dry run lists before anything is planned."""
    done = project.snakemake("-n", *options)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout
    return [line for line in done.stdout.split("ConfigError: ")[1].splitlines() if line.strip()]


# --- a user's mistakes ----------------------------------------------------------------------------------------


def test_unknown_names(project: Project) -> None:
    """Where they were written, and what was probably meant."""
    assert sorted(refused(project, "--config", "matrix={agents: [carful], tasks: [bccd-det]}")) == [
        "--config: matrix.agents: unknown agent 'carful' (did you mean 'careful'?)",
        f"--config: matrix.tasks: unknown task 'bccd-det' (did you mean '{TASK}'?)",
    ]
    assert refused(project, "--config", "matrix={tiers: [light]}") == [
        "--config: matrix.tiers.0: input should be 'lite', 'standard' or 'pro' (got 'light')"
    ]


def test_problems_name_their_file(project: Project) -> None:
    """The demo's file is merged into the default one; the one that holds the mistake is named."""
    path = project.path / "demo/config.yaml"
    path.write_text(path.read_text().replace("agents: [careful,", "agents: [carful,"))
    assert refused(project) == ["demo/config.yaml: matrix.agents: unknown agent 'carful' (did you mean 'careful'?)"]


# --- data -----------------------------------------------------------------------------------------------------


def failed_step(project: Project, *options: str) -> str:
    """Output of a call that fails in a step, not in planning."""
    done = project.snakemake(*options)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout
    return done.stdout


def test_no_source_answers(project: Project) -> None:
    """Without the user's copy and without network: the message says how to get the data."""
    campaign = "--campaign results/campaign.json"
    planned = project.run(*f"python scripts/plan_campaign.py {campaign} --config results=results".split())
    assert planned.returncode == 0, planned.stdout
    done = project.run(*f"python scripts/fetch_dataset.py {campaign} --dataset bccd".split(), GIT_ALLOW_PROTOCOL="file")
    assert done.returncode == 1
    assert "How to get it: " in done.stdout
    assert len(done.stdout.splitlines()) <= 3
    assert not (project.path / "data/demo/raw/bccd/receipt.json").exists()


def test_purged_data(finished: Project) -> None:
    """A scratch file system removed what was old: finished runs want nothing; a new one, and `prepare`, stage again."""
    manifest = finished.path / f"data/demo/manifests/{TASK}.json"
    cases = manifest.read_bytes()
    before = stamps(finished, "run.json", "score.json")

    def purge(*folders: str, every: int = 1) -> None:
        for folder in folders:
            files = [path for path in sorted((finished.path / "data/demo" / folder).rglob("*")) if path.is_file()]
            for path in files[::every]:
                path.unlink()

    purge(f"public/{TASK}", f"private/{TASK}", "raw/bccd/BCCD")
    assert planned(finished) == []
    add_agent(finished, "late")
    step = f"--campaign results/demo/campaign.json --run {run_folder(finished, 'late').relative_to(finished.path)}"
    alone = finished.run(*f"python scripts/run_agent.py {step}".split())
    assert alone.returncode == 1 and "Traceback" not in alone.stdout
    assert f"16 of 16 staged files of {TASK} are gone" in alone.stdout and "`snakemake prepare`" in alone.stdout
    assert Counter(planned(finished, *only("late")))["stage_task"] == 1
    done = finished.snakemake(*only("late"))
    assert done.returncode == 0, done.stdout[-3000:]
    assert Counter(executed(finished)) & Counter(("fetch_dataset", "stage_task", "run_agent")) == Counter(
        ("fetch_dataset", "stage_task", "run_agent")
    )
    assert manifest.read_bytes() == cases
    purge(f"private/{TASK}", every=16)  # one of the files
    assert (finished.snakemake("prepare").returncode, executed(finished)) == (0, ["stage_task"])
    assert planned(finished, "prepare") == []
    assert stamps(finished, "run.json", "score.json").items() >= before.items()
    purge(f"private/{TASK}")
    for name in ("detail_report.json", "score.json"):  # of a submission that was collected before
        (run_folder(finished, "late") / name).unlink()
    assert finished.snakemake(*only("late")).returncode == 0
    assert [step for step in executed(finished) if step in ("run_agent", "stage_task", "score_metrics")] == [
        "stage_task",
        "score_metrics",
    ]


def test_damaged_data(project: Project) -> None:
    """Named file and remedy; nothing is staged half, and repaired data goes on without anything else."""
    path = project.path / "demo/data/bccd/BCCD/JPEGImages/BloodImage_00019.jpg"
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    failed_step(project, "prepare")
    assert path.name in message_in(project, f"logs/stage_task/{TASK}.log")[0]
    assert not list((project.path / "data").rglob("image.png"))
    assert not (project.path / f"data/demo/manifests/{TASK}.json").exists()
    path.write_bytes(whole)
    assert project.snakemake("--forcerun", "fetch_dataset", "--", "prepare").returncode == 0


# --- containers and keys --------------------------------------------------------------------------------------

APPTAINER = ("--configfile", "demo/config.yaml", "demo/apptainer.yaml")


@pytest.fixture
def without_apptainer(tmp_path: Path) -> str:
    """A search path with everything of this machine but container runtimes."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        for tool in Path(folder).iterdir():
            if tool.name not in ("apptainer", "singularity") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    return f"{tmp_path / 'automedbench/.venv/bin'}:{tools}"


def test_container_runtime_missing(project: Project, without_apptainer: str) -> None:
    """Building an image says what to install; no agent is started."""
    done = project.snakemake(*APPTAINER, PATH=without_apptainer)
    assert done.returncode == 1
    lines = message_in(project, "logs/build_image/light.log")
    assert lines[0].startswith("MissingDataError: Apptainer is not installed")
    assert not (project.path / "results/demo/runs").exists()


NO_IMAGE = """{"flavour": "none", "recipe": "", "base": "", "system": "Debian", "python": "3.11.2", "cuda": null,
"named": [], "packages": {}, "tools": []}"""


def give_images(project: Project) -> None:
    """Files that stand for images, newer than what they would be built from."""
    for name in ("light", "scorer"):
        (project.path / "images").mkdir(exist_ok=True)
        (project.path / f"images/{name}.sif").write_text("no image")
        (project.path / f"images/{name}.json").write_text(NO_IMAGE)


def test_container_runtime_missing_at_the_run(finished: Project, without_apptainer: str) -> None:
    """Images were built elsewhere; the run fails as the machine's fault, is kept, and nothing is scored."""
    give_images(finished)
    add_agent(finished, "sixth")
    done = finished.snakemake(*APPTAINER, *only("sixth"), "--", "runs", PATH=without_apptainer)
    assert done.returncode == 1
    lines = message_in(finished, f"logs/run_agent/sixth/{TASK}-lite-r1.log")
    assert "pptainer" in lines[0]
    assert not (run_folder(finished, "sixth") / "run.json").exists()


def test_key_is_asked_for_by_the_run_alone(finished: Project) -> None:
    """A dry run, and other agents, do without; the run itself names the variable and makes no attempt."""
    give_images(finished)
    with open(finished.path / "demo/agents.yaml", "a") as stream:
        stream.write(
            "  paid: {provider: openai, model: m, base_url: 'http://127.0.0.1:9/v1', api_key_env: NO_SUCH_KEY}\n"
        )
    options = (*APPTAINER, *only("careful", "paid"))
    assert "run_agent" in planned(finished, *options)
    done = finished.snakemake(*options, "--", f"results/demo/runs/paid/{TASK}/lite/r1/run.json")
    assert done.returncode == 1
    lines = message_in(finished, f"logs/run_agent/paid/{TASK}-lite-r1.log")
    assert "NO_SUCH_KEY" in lines[0]
    assert not list((run_folder(finished, "paid")).rglob("run.json"))


# --- the end of a call ----------------------------------------------------------------------------------------


def test_one_broken_agent_costs_nobody_the_page(finished: Project) -> None:
    """The others stand on a page; what is missing, why, and what to type are said; it is whole after the repair."""
    add_agent(finished, "broken")
    script = finished.path / "demo/agents/broken.yaml"
    whole = script.read_text()
    script.write_text("- {calls: 3}")
    printed = failed_step(finished, *only("careful", "hasty", "broken")).split("from what is finished ...\n")[1]
    lines = printed.splitlines()
    assert len(lines) <= 25
    assert re.findall(r"^ ([12–]  \w+) ", printed, re.MULTILINE) == ["1  careful", "2  hasty", "–  broken"]
    assert lines[-4] == "2 of 3 runs are scored; steps that failed: 1"
    assert re.fullmatch(rf"  run_agent broken/{TASK}/lite/1: ConfigError: demo/agents/broken.yaml: .*", lines[-3])
    assert lines[-2].startswith(
        "Next: snakemake --profile profiles/demo --config 'matrix={agents: [careful, hasty, broken]"
    )
    assert lines[-1] == "Page: results/demo/leaderboard/index.html"
    assert "provisional" in (finished.path / "results/demo/leaderboard/index.html").read_text()
    script.write_text(whole)
    done = finished.snakemake(*only("careful", "hasty", "broken"))
    assert (done.returncode, "All 3 runs are scored" in done.stdout) == (0, True)
    nothing = finished.snakemake(*only("careful", "hasty", "broken"))
    assert "All 3 runs are scored" in nothing.stdout and re.search(r"^ 1  careful", nothing.stdout, re.MULTILINE)
    assert "runs are scored" not in finished.snakemake("prepare").stdout + finished.snakemake("-n").stdout


# --- results that were damaged --------------------------------------------------------------------------------


def test_corrupt_score(finished: Project) -> None:
    """The leaderboard names the file; a partial one counts it as missing; deleting it repairs it."""
    score = run_folder(finished, "hasty") / "score.json"
    whole = score.read_bytes()
    score.write_text('{"schema": ')
    for _ in range(2):  # the page of what is finished does not pass for the whole one
        failed_step(finished)
    lines = message_in(finished, "logs/build_leaderboard.log")
    assert "hasty" in lines[0]
    assert "delete it and run its rule again" in " ".join(lines)
    assert finished.snakemake("partial").returncode == 0
    assert "Counted as missing" in (finished.path / "logs/partial.log").read_text()
    score.unlink()
    assert finished.snakemake().returncode == 0
    assert score.read_bytes() == whole


# --- interruptions --------------------------------------------------------------------------------------------


def attempts(project: Project) -> list[str]:
    """Names of the slow agent's attempts."""
    return sorted(path.name for path in (run_folder(project, "slow") / "attempts").glob("*"))


def workspace(project: Project, number: int) -> Path:
    return run_folder(project, "slow") / f"attempts/{number:04d}/workspace"


def release(project: Project, number: int) -> None:
    (workspace(project, number) / "release").touch()


def wait_until_it_works(project: Project, number: int) -> None:
    wait_for((workspace(project, number) / "began").exists, 90)


def processes_in(folder: Path) -> list[int]:
    """Processes that work in a folder or below it."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                place = os.readlink(path / "cwd")
            except OSError:
                continue
            if place == str(folder) or place.startswith(f"{folder}/"):
                found.append(int(path.name))
    return found


def finish(project: Project) -> None:
    """Let the interrupted campaign with the slow agent run to its end: its attempt goes on."""
    (workspace(project, 1) / "began").unlink()
    with started(project, *only("slow"), "--", "runs") as head:
        wait_until_it_works(project, 1)
        release(project, 1)
        assert head.wait(timeout=120) == 0, log_of(project)
    record = read_record(run_folder(project, "slow") / "run.json", RunRecord)
    assert (record.attempt, record.resumes, record.outcome) == (1, 1, "submitted")
    assert attempts(project) == ["0001"]
    conversation = read_record(run_folder(project, "slow") / "conversation.json", Conversation)
    assert [call.stdout for call in conversation.calls] == ["released\n"]


def test_ctrl_c(slow: Project) -> None:
    """The terminal sends it to every process: the attempt is kept, no process is left, the next call continues it."""
    with started(slow, *only("slow"), "--", "runs") as head:
        wait_until_it_works(slow, 1)
        os.killpg(head.pid, signal.SIGINT)
        assert head.wait(timeout=60) != 0
    wait_for(lambda: not processes_in(workspace(slow, 1)), 20)
    failure = json.loads((workspace(slow, 1).parent / "failure-0001.json").read_text())
    assert (failure["kind"], failure["resumable"]) == ("cancelled", True)
    assert "Traceback" not in log_of(slow)
    assert not (run_folder(slow, "slow") / "lease.json").exists()
    finish(slow)


def test_sigterm(slow: Project) -> None:
    """As a shutdown or `kill` sends it to the head alone: the first waits for what runs, the second ends that too."""
    with started(slow, *only("slow"), "--", "runs") as head:
        wait_until_it_works(slow, 1)
        head.terminate()
        wait_for(lambda: "SIGTERM: waiting for running steps to end" in log_of(slow), 30)
        assert head.poll() is None and drivers(slow)
        head.terminate()
        assert head.wait(timeout=60) != 0
    wait_for(lambda: not processes_in(workspace(slow, 1)), 20)
    failure = json.loads((workspace(slow, 1).parent / "failure-0001.json").read_text())
    assert (failure["kind"], failure["resumable"]) == ("cancelled", True)
    assert "Traceback" not in log_of(slow)
    finish(slow)


def test_a_board_while_runs_are_at_work(slow: Project) -> None:
    """The call at work keeps the plan that it will write locked until it ends; `partial` needs no file of a rule."""
    plan = slow.path / "results/demo/plan.json"
    plan.unlink()
    both = only("careful", "slow")
    with started(slow, *both) as head:
        wait_until_it_works(slow, 1)
        wait_for(plan.is_file)
        shown = slow.snakemake("partial", *both)
        assert shown.returncode == 0, shown.stdout[-3000:]
        assert head.poll() is None and list((slow.path / ".snakemake/locks").iterdir())
        release(slow, 1)
        assert head.wait(timeout=120) == 0, log_of(slow)
    printed = (slow.path / "logs/partial.log").read_text()
    assert re.search(r"careful.* 1/1\b", printed) and re.search(r"slow.* 0/1\b", printed)


def test_killed_head(slow: Project) -> None:
    """The orphan keeps its lease: a restarted campaign waits for it and adopts its result, nothing runs twice."""
    with started(slow, *only("slow"), "--", "runs") as head:
        wait_until_it_works(slow, 1)
        refused = slow.run("make", "unlock")
        assert refused.returncode != 0
        assert f"nothing was unlocked: Snakemake is running in this folder: process {head.pid} " in refused.stdout
        assert head.poll() is None and list((slow.path / ".snakemake/locks").iterdir())
        locked = slow.snakemake(*only("slow"), "--", "runs")
        assert f"nothing was started: Snakemake is running in this folder: process {head.pid} " in locked.stdout
        os.kill(head.pid, signal.SIGKILL)
        head.wait(timeout=30)
        locked = slow.snakemake(*only("slow"), "--", "runs")
        assert locked.returncode == 1 and "locked by a call of Snakemake that was killed" in locked.stdout
        assert slow.run("make", "unlock").returncode == 0
        assert not list((slow.path / ".snakemake/heads").iterdir())
        with started(slow, *only("slow"), "--", "runs") as second:
            wait_for(lambda: len(drivers(slow)) == 2, 60)
            waiting = slow.path / f"logs/run_agent/slow/{TASK}-lite-r1.log"
            wait_for(lambda: waiting.is_file() and "Waiting for process" in waiting.read_text(), 30)
            assert attempts(slow) == ["0001"]
            release(slow, 1)
            assert second.wait(timeout=120) == 0, log_of(slow)
        assert "adopted instead of repeated" in waiting.read_text()
    assert attempts(slow) == ["0001"]
    record = read_record(run_folder(slow, "slow") / "run.json", RunRecord)
    assert (record.attempt, record.outcome) == (1, "submitted")


def test_killed_head_and_orphan(slow: Project) -> None:
    """Both are gone, as after a power cut: the agent's code dies too, and a stale lease holds nobody up."""
    with started(slow, *only("slow"), "--", "runs") as head:
        wait_until_it_works(slow, 1)
        (driver,) = drivers(slow)
        os.kill(head.pid, signal.SIGKILL)
        os.kill(driver, signal.SIGKILL)
        head.wait(timeout=30)
    wait_for(lambda: not processes_in(workspace(slow, 1)), 20)
    assert not (run_folder(slow, "slow") / "run.json").exists()
    assert slow.run("make", "unlock").returncode == 0
    finish(slow)


# --- a full disk ----------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(finished: Project) -> Iterator[Path]:
    """A results folder on a disk of 400 kB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    place = finished.path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_disk_full_in_the_results(finished: Project, small_disk: Path) -> None:
    """The machine's fault: a message, no traceback, no result; with space the run is repeated, the attempt kept."""
    add_agent(finished, "large", "head -c 380000 /dev/zero > big; echo $?")
    options = (*only("large", "crasher"), "results=small")
    done = finished.snakemake(*options)
    assert done.returncode == 1
    all_logs = sorted((finished.path / "logs/run_agent").rglob("*.log"))
    logs = [path for path in all_logs if "InfrastructureError" in path.read_text()]
    assert logs
    for path in logs:
        message_in(finished, str(path.relative_to(finished.path)))
        assert "space" in path.read_text()
    before = sorted(path.name for path in small_disk.glob("runs/*/*/*/*/attempts/*"))
    subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
    again = finished.snakemake(*options)
    assert again.returncode == 0, again.stdout[-3000:]
    for agent in ("large", "crasher"):
        score = read_record(small_disk / f"runs/{agent}/{TASK}/lite/r1/score.json", ScoreRecord)
        assert score.run.agent == agent
    assert len(before) <= len(list(small_disk.glob("runs/*/*/*/*/attempts/*")))


def test_finished_runs_survive_everything(finished: Project) -> None:
    """After a failed call, what was finished is still finished."""
    before = {agent: (run_folder(finished, agent) / "score.json").read_bytes() for agent in AGENTS}
    finished.snakemake("--config", "matrix={agents: [nobody]}")
    finished.snakemake("--config", "datasets={bccd: {path: nowhere}}")
    assert {agent: (run_folder(finished, agent) / "score.json").read_bytes() for agent in AGENTS} == before
    assert "run_agent" not in planned(finished)
