"""Honest campaigns that are not the demo: each is packed and admitted, and what cannot be looked at is said.

The runs are made in this process, on the staged data of a finished demo, with the steps that the rules call.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaigns import TASK, copy_of_finished
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from automedbench.agent.models.model import Reply
from automedbench.agent.models.scripted import load_script
from automedbench.agent.run import run_agent
from automedbench.base.endpoint.usage import Billed
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record, write_record
from automedbench.base.records import Conversation, JudgeRecord, RunId, RunRecord, Tokens
from automedbench.campaign.agents import load_judges
from automedbench.campaign.config import RUBRICS
from automedbench.campaign.load import Campaign, build_campaign_record, load_campaign, write_campaign
from automedbench.campaign.record import CampaignRecord
from automedbench.commands._bundle import Labels, open_bundle, pack
from automedbench.commands.admit import admit
from automedbench.judge import judge_run, load_rubric
from automedbench.judge.evidence import HIDDEN_NAME
from automedbench.judge.panel import open_panel
from automedbench.judge.panel.member import JudgeText
from automedbench.leaderboard.plan import make_plan
from automedbench.planning.versions import image_version
from automedbench.sandbox.boxes import LocalSandbox, Sandbox
from automedbench.steps.audit_run import audit_run
from automedbench.steps.collect_submission import collect_submission
from automedbench.steps.run_agent import plan_of_run
from automedbench.steps.score_judge import score_judge
from automedbench.steps.score_metrics import score_metrics
from automedbench.steps.score_run import score_run

HASTY = {"provider": "scripted", "script": "demo/agents/{track}/hasty.yaml", "trusted": True}
SILENT = HASTY | {"script": "demo/agents/{track}/silent.yaml"}
PRICES = {"input": "1", "output": "2", "as_of": "2026-01-01", "source": "price page"}
QUOTE = f"{HIDDEN_NAME} threshold on the grey image"
"""Of the plan, as judges are shown it of an agent called otsu."""
LARGE = 11 * 1024 * 1024
"""Bytes of output: more than a call's log takes (10 MiB)."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with staged data."""
    return copy_of_finished(tmp_path_factory, tmp_path_factory.mktemp("honest") / "automedbench").path


def settings(**changes: Any) -> dict[str, Any]:
    """The demo's configuration with one task."""
    files = (Path("config/config.yaml"), Path("demo/config.yaml"))
    whole: dict[str, Any] = {name: value for path in files for name, value in yaml.safe_load(path.read_text()).items()}
    return whole | changes


class Lab:
    """A campaign of these agents below ``folder``; its settings and agents may change while it is under way."""

    judge = staticmethod(score_judge)

    def __init__(self, folder: Path, agents: dict[str, dict[str, Any]], **changes: Any) -> None:
        folder.mkdir(parents=True)
        self.folder, self.agents, self.here = folder, agents, load_campaign(settings())
        self.matrix = {"agents": list(agents), "tasks": [TASK], "tiers": ["lite"], "repeats": 1}
        self.changes = {"agents_file": str(folder / "agents.yaml"), "results": str(folder / "results")} | changes
        self.change()

    def change(self, matrix: dict[str, Any] | None = None, **changes: Any) -> None:
        """Write agents, settings and plan as they are from now on."""
        self.matrix |= matrix or {}
        self.changes |= changes
        (self.folder / "agents.yaml").write_text(yaml.safe_dump({"agents": self.agents}))
        self.campaign: Campaign = load_campaign(settings(matrix=self.matrix, **self.changes))
        write_campaign(self.campaign)
        write_record(self.folder / "results/plan.json", make_plan(self.campaign))

    def home(self, run: RunId) -> Path:
        return self.folder / "results/runs" / run.path

    def start(self, run: RunId, *, dies: bool = False, **options: Any) -> None:
        """Let the agent work; ``dies``: its driver is killed before the second reply, without a word."""
        self.home(run).mkdir(parents=True, exist_ok=True)
        plan = plan_of_run(build_campaign_record(self.campaign), self.home(run))
        if not dies:
            run_agent(plan, say=lambda _text: None, **options)
        elif (child := os.fork()) == 0:
            model, asked = load_script(Path(plan.agent.script or "")), []

            class Killed:
                def reply(self, *given: Any) -> Any:
                    asked.append(1)
                    return model.reply(*given) if len(asked) < 2 else os._exit(9)

            run_agent(plan, say=lambda _text: None, open_model=lambda *_: contextlib.nullcontext(Killed()))
        else:
            assert os.waitpid(child, 0)[1] == 9 << 8

    def score(self, run: RunId) -> None:
        """The steps after the run, in this process's sandbox."""
        record = build_campaign_record(self.campaign)
        local = record.settings.sandbox.model_copy(update={"backend": "local"})
        own: CampaignRecord = record.model_copy(
            update={"settings": record.settings.model_copy(update={"sandbox": local})}
        )
        for step in (collect_submission, audit_run, score_metrics, self.judge, score_run):
            step(own, self.home(run))

    def finish(self, **options: Any) -> Lab:
        """Every planned run that has no score."""
        for run in self.campaign.runs:
            if not (self.home(run) / "score.json").exists():
                self.start(run, **options)
                self.score(run)
        return self

    def checked(self, **options: bool) -> tuple[list[str], str]:
        """Why its bundle is refused, and what is said that could not be looked at."""
        bundle, opened = self.folder / "lab.tar", self.folder / "opened"
        pack(self.campaign, Labels(lab="lab"), Ed25519PrivateKey.generate(), bundle)
        shutil.rmtree(opened, ignore_errors=True)
        checks = [each for found in admit(open_bundle(bundle, opened), self.here, **options).values() for each in found]
        told = {
            verdict: [f"{each.what}: {each.detail}" for each in checks if each.verdict == verdict]
            for verdict in ("differs", "absent")
        }
        return told["differs"], "\n".join(told["absent"])


def doing(folder: Path, *codes: str, language: str = "bash") -> dict[str, Any]:
    """A scripted agent that runs each code in a turn of its own and submits."""
    turns: list[dict[str, Any]] = [
        {"content": "ü 日本", "calls": [{"tool": "execute_code", "language": language, "code": code}]} for code in codes
    ]
    turns += [{"calls": [{"tool": "submit_results", "summary": "fertig 日本"}]}] * 2
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "script.yaml"
    script.write_text(yaml.safe_dump(turns))
    return {"provider": "scripted", "script": str(script), "trusted": True}


# --- logs and outputs that no demo has ------------------------------------------------------------------------

ODD: dict[str, tuple[str, ...]] = {
    "no call": (),
    "ended by a limit": ("echo '[SANDBOX] own words' >&2; sleep 20", "printf 'no newline' >&2; kill -9 $$", "echo on"),
    "went on after its call": ("(sleep 0.4; echo later; echo é >&2) & echo now", "sleep 0.8"),
    "beyond the log": (f"yes 'é 日本' | head -c {LARGE}; echo end", "yes '[... 5 bytes removed ...]' | head -c 20000"),
    "zeros": ("head -c 3000000 /dev/zero",),
    "binary": (
        "head -c 70000 /dev/urandom; printf 'a\\r\\nb\\0\\xff' >&2",
        "head -c 16385 /dev/zero | tr '\\0' '\\377'",
    ),
    "names": (
        "mkdir -p 'ä 日本' agents_outputs plan; touch $'ä 日本/\\xff\\n'; printf '# \\xff\\r\\n' > plan/plan.md",
        "for n in $(seq 300); do echo $n > agents_outputs/é$n; done; ln -s /etc agents_outputs/link; mkfifo pipe",
        "for c in $(ls $DATA_DIR | head -3); do mkdir agents_outputs/$c; ln -s /etc/passwd agents_outputs/$c/"
        "prediction.json; done",
    ),
    "links": ("ln -s /tmp agents_outputs; ln -s /etc plan",),
    "nothing": ("true",),
}


def test_logs_and_outputs_of_any_form(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    agents = {f"agent-{number}": doing(tmp_path / str(number), *codes) for number, codes in enumerate(ODD.values())}
    reasons, said = Lab(tmp_path / "lab", agents, limits={"exec_timeout_s": 2}).finish().checked()
    assert reasons == [], list(ODD)
    assert "script.yaml is not here" in said


# --- campaigns with a history ---------------------------------------------------------------------------------


def killed_before_another_question(folder: Path) -> Lab:
    """Its driver was killed, then a limit was raised: the second attempt answers another brief."""
    lab = Lab(folder, {"a": HASTY})
    lab.start(lab.campaign.runs[0], dies=True)
    lab.change(limits={"time_limit_s": 7200})
    return lab.finish()


def resumed(folder: Path) -> Lab:
    """Its driver was killed, and the same attempt went on."""
    lab = Lab(folder, {"a": HASTY})
    (run,) = lab.campaign.runs
    lab.start(run, dies=True)
    lab.finish()
    assert read_record(lab.home(run) / "run.json", RunRecord).resumes == 1
    return lab


def never_begun(folder: Path) -> Lab:
    """The first attempt's workspace could not be made: no folder on the node's scratch."""
    lab = Lab(folder, {"a": HASTY}, scratch="/proc/none")
    with pytest.raises(InfrastructureError):
        lab.start(lab.campaign.runs[0])
    lab.change(scratch=None)
    return lab.finish()


def limit_raised_half_way(folder: Path) -> Lab:
    """What is finished is not repeated, as the workflow promises."""
    lab = Lab(folder, {"a": HASTY, "b": SILENT}, only={"agents": ["a"]}).finish()
    lab.change(only={}, limits={"time_limit_s": 7200})
    return lab.finish()


class Paid:
    """A scripted model whose every request is billed."""

    def __init__(self) -> None:
        self.script = load_script(Path("demo/agents/detection/hasty.yaml"))

    def reply(self, *given: Any) -> Reply:
        usage = Tokens(prompt=1000)
        return replace(self.script.reply(*given), usage=usage, spent=(Billed(usage),), model="m-0")


def served_lab(folder: Path, **entry: Any) -> Lab:
    """A served model; what it works in says to be a container, with a decoy and a log of downloads."""
    served: dict[str, Any] = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9", "api_key_env": "K"}
    served |= entry
    images = folder / "images"
    box = {"sandbox": {"backend": "apptainer", "network": "sealed"}, "containers": {"folder": str(images)}}
    lab = Lab(folder, {"a": served}, **box)
    flavour = lab.campaign.flavour("a")
    told = {"flavour": flavour, "recipe": image_version(lab.campaign, flavour), "base": "", "system": "", "python": "3"}
    images.mkdir()
    (images / f"{flavour}.sif").touch()
    (images / f"{flavour}.json").write_text(json.dumps(told | {"cuda": None, "named": [], "packages": {}, "tools": []}))

    @contextlib.contextmanager
    def sandbox(plan: Any, attempt: Any, log: Any, *_: Any) -> Iterator[Sandbox]:
        with LocalSandbox(public=plan.public / plan.card.id, workspace=attempt.workspace) as local:
            claimed = {"backend": "apptainer", "network": "sealed", "image_sha256": "0" * 64}
            local.enforced = local.enforced.model_copy(update=claimed)
            log.event("decoy", marker=f"amb-{'0' * 24}")
            fetched = {"method": "GET", "status": 200, "host": "example.org", "path": "/model.safetensors"}
            (attempt.log / "egress.jsonl").write_text(json.dumps(fetched) + "\n")
            yield local

    return lab.finish(open_model=lambda *_: contextlib.nullcontext(Paid()), open_sandbox=sandbox)


def price_added_afterwards(folder: Path) -> Lab:
    """Without a price there was no limit of cost; it was looked up after the run."""
    lab = served_lab(folder)
    lab.agents["a"] |= {"pricing": PRICES}
    lab.change()
    return lab


def price_edited_afterwards(folder: Path) -> Lab:
    """The run keeps its cost by the prices of then: 1 USD per million tokens of input."""
    lab = served_lab(folder, pricing=PRICES)
    cost = read_record(lab.home(lab.campaign.runs[0]) / "run.json", RunRecord).totals.cost_usd
    assert cost and float(cost) > 0
    lab.agents["a"] |= {"pricing": PRICES | {"input": "7"}}
    lab.change()
    return lab


def judged_by_a_panel(folder: Path) -> Lab:
    """Its judges are not here to be asked; one quotes a line with the agent's name, which they are not shown."""
    folder.mkdir()
    entry = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "K"}
    (folder / "judges.yaml").write_text(yaml.safe_dump({"judges": {"strict": entry, "lenient": entry}}))
    panel = {"kind": "llm", "panel": ["strict", "lenient"]}
    lab = Lab(folder / "lab", {"otsu": HASTY}, judge=panel, judges_file=str(folder / "judges.yaml"))
    lab.judge = judge_without_a_model  # type: ignore[method-assign]
    return lab.finish()


class Judge:
    """Answers with one verdict for every criterion."""

    def __init__(self, name: str, *_: Any) -> None:
        self.verdict = float(name == "lenient")

    def ask(self, messages: Sequence[dict[str, Any]], schema: dict[str, Any]) -> JudgeText:
        quote = QUOTE if self.verdict else ""
        entry = {"reason": "because", "quote": quote, "turn": None, "verdict": self.verdict}
        criteria = dict.fromkeys(schema["properties"]["criteria"]["required"], entry)
        return JudgeText(json.dumps({"criteria": criteria, "error_codes": []}), None, (Billed(Tokens(prompt=10)),))

    def close(self) -> None:
        """Nothing is open."""


def judge_without_a_model(campaign: CampaignRecord, run: Path) -> JudgeRecord:
    """The step ``score_judge`` with judges that are no models."""
    conversation = read_record(run / "conversation.json", Conversation)
    judges = load_judges(Path(campaign.settings.judges_file))
    with open_panel(judges, campaign.settings.judge.panel, open_endpoint=Judge) as panel:  # type: ignore[arg-type]
        judged = judge_run(conversation, load_rubric(Path(RUBRICS), "detection"), conversation.run.tier, panel)
    write_record(run / "judge.json", judged)
    return judged


def another_campaign_before(folder: Path) -> Lab:
    """One agent failed and is left out now, the other did another tier before; the ledger knows both."""
    lab = Lab(folder, {"a": HASTY, "b": SILENT}, only={"agents": ["a"]}).finish()
    lab.change(only={})
    lab.start(lab.campaign.runs[1], dies=True)
    lab.change({"agents": ["a"], "tiers": ["standard"]})
    return lab.finish()


def other_cases_here(folder: Path) -> Lab:
    """The admitting side has a fresh draw of the cases."""
    lab = Lab(folder, {"a": HASTY}).finish()
    lab.here = load_campaign(settings(cases={"draw": 7}))
    return lab


def other_script_here(folder: Path) -> Lab:
    """The admitting side has a file of that name, which is another one."""
    script = Path("mine.yaml")
    shutil.copy("demo/agents/detection/hasty.yaml", script)
    lab = Lab(folder, {"a": HASTY | {"script": str(script)}}).finish()
    script.write_text(script.read_text() + "# another one\n")
    return lab


def no_data_here(folder: Path) -> Lab:
    lab = Lab(folder, {"a": HASTY}).finish()
    nowhere = {name: str(folder / "none" / name) for name in ("raw", "public", "private", "manifests")}
    lab.here = load_campaign(settings(data=nowhere))
    return lab


HISTORIES: dict[Callable[[Path], Lab], str] = {
    resumed: "",
    price_edited_afterwards: "",
    killed_before_another_question: "attempts without a record: 1, killed or never started: runs/a/",
    never_begun: "attempts without a record: 1, killed or never started: runs/a/",
    limit_raised_half_way: "limits: raised since the run: time_limit_s 3600.0 → 7200.0",
    price_added_afterwards: "",
    another_campaign_before: f"other runs of the ledger: a/{TASK}/lite/r1 is of no agent and tier of the plan; 2 such",
    other_cases_here: "their cases are of the draw published, here are those of fresh (seed 7)",
    other_script_here: "agent's files: mine.yaml or what belongs to it is another one here",
    no_data_here: f"{TASK} does not exist: the task is not staged here",
}


@pytest.mark.parametrize("history", HISTORIES, ids=lambda each: each.__name__)
def test_histories(
    history: Callable[[Path], Lab], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("K", "a-key-of-no-one")
    reasons, said = history(tmp_path / "lab").checked()
    assert reasons == []
    assert HISTORIES[history] in said


def test_a_panel_does_not_say_more_than_its_judgements(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two verdicts of 1 and 0 make ½, which is admitted; the forger makes the score of his own."""
    monkeypatch.chdir(place)
    lab = judged_by_a_panel(tmp_path / "lab")
    reasons, said = lab.checked()
    assert reasons == [] and "judged again: panel:strict+lenient was not asked again" in said
    home = lab.home(lab.campaign.runs[0])
    judged = read_record(home / "judge.json", JudgeRecord)
    assert [one.invalid for one in judged.judgements] == [{}, {}] and judged.stages["S3"] == 0.5
    write_record(home / "judge.json", judged.model_copy(update={"stages": judged.stages | {"S3": 1.0}}))
    score_run(build_campaign_record(lab.campaign), home)
    assert lab.checked()[0] == ["panel's judgements: stages S3: recorded 1.0, made again 0.5"]


def test_choices_that_can_raise_a_score_are_for_the_admitting_side(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tier for one agent alone, and a limit lowered since a run: refused with a reason, or taken."""
    monkeypatch.chdir(place)
    lab = Lab(tmp_path / "lab", {"a": HASTY, "b": SILENT}).finish()
    extra = {"agent": "a", "task": TASK, "tier": "standard", "repeat": 1}
    lab.change({"include": [extra]}, limits={"max_turns": 40})
    lab.finish()
    reasons, _ = lab.checked()
    assert sorted({reason.partition(":")[0] for reason in reasons}) == ["limits", "the same tasks for all agents"]
    assert all(reason.endswith("--accept-decisions") for reason in reasons)
    assert lab.checked(decisions=True)[0] == []
