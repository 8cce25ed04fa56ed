"""Lite routes in the research image, offline and as an ordinary user: one of each track, from its hints to its score.

An agent behind an endpoint plays what the rendered hints say: their code as it stands. The checkpoints are tiny ones of
random weights (``tiny_checkpoints``) from a hub on loopback, got through the mirror. ``AMB_RESEARCH`` names the image.
What needs other hosts (an index of packages, a clone of a method's code) is replaced, and said in ``OTHERWISE``.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import make_campaign
from unprivileged import IMAGES, ROOT, USER, as_user, user_folder, why_not
from upstreams import FakeHub, Seen, WebServer

from automedbench.agent import run as agent_run
from automedbench.agent.models.scripted import CodeStep, ScriptedTurn, SubmitStep
from automedbench.agent.plan import RunPlan, compose_brief
from automedbench.base.files import read_record
from automedbench.base.records import AuditRecord, Conversation, RunId, RunRecord, ScoreRecord, SubmissionRecord
from automedbench.campaign.config import SandboxConfig
from automedbench.campaign.record import CampaignRecord
from automedbench.sandbox.boxes import LocalSandbox
from automedbench.steps.audit_run import audit_run
from automedbench.steps.collect_submission import collect_submission
from automedbench.steps.fetch_dataset import fetch_dataset
from automedbench.steps.preflight import preflight
from automedbench.steps.run_agent import plan_of_run
from automedbench.steps.score_judge import score_judge
from automedbench.steps.score_metrics import score_metrics
from automedbench.steps.score_run import score_run
from automedbench.steps.stage_task import stage_task
from automedbench.tracks import get_track
from automedbench_rehearsal.model_server.server import ScriptedServer

pytestmark = [pytest.mark.long, pytest.mark.apptainer, pytest.mark.timeout(3600)]

RESEARCH = Path(os.environ.get("AMB_RESEARCH", IMAGES / "research.sif"))
TASKS = {
    "kidney-seg-task": "segmentation",
    "nih-cxr-sr-task": "enhancement",
    "vqa-rad-task": "vqa",
    "pathology-caption-100-task": "report_generation",
    "bccd-det-task": "detection",
    "braintumor-cls-task": "classification",
    "totalsegmentator-ctsr-task": "synthesis",
}
KEY = "LITE_ROUTES_KEY"
PLAIN_CNN = "Roldbach/autoencoder_ct_3d_super_resolution"
ONLY = set(filter(None, os.environ.get("AMB_ROUTES", "").split(",")))
"""Tasks of a shorter look, for who changes one route."""

# The parts of LLaVA-Med's code that its hint imports, for a checkpoint of another, tiny kind.
LLAVA_MED = """
mkdir -p code/llava/model && touch code/llava/__init__.py code/llava/model/__init__.py
echo 'DEFAULT_IMAGE_TOKEN, IMAGE_TOKEN_INDEX = "", -200' > code/llava/constants.py
cat > code/llava/conversation.py <<'PY'
class Turns:
    roles = ("USER", "ASSISTANT")
    said = ""

    def copy(self):
        return Turns()

    def append_message(self, role, text):
        self.said += text or ""

    def get_prompt(self):
        return self.said


conv_templates = {"mistral_instruct": Turns()}
PY
cat > code/llava/mm_utils.py <<'PY'
import numpy as np
import torch


def process_images(images, processor, config):
    pictures = [np.asarray(image.resize((32, 32)), np.float32) / 255 for image in images[:1]]
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)


def tokenizer_image_token(prompt, tokenizer, index, return_tensors):
    return tokenizer(prompt, return_tensors=return_tensors, truncation=True, max_length=64).input_ids[0]
PY
cat > code/llava/model/builder.py <<'PY'
from transformers import BertTokenizerFast, BlipForQuestionAnswering


class Model:
    config = None

    def __init__(self, folder):
        self.network = BlipForQuestionAnswering.from_pretrained(folder).eval()

    def generate(self, ids, images, do_sample, max_new_tokens, use_cache):
        return self.network.generate(input_ids=ids, pixel_values=images.float(), max_new_tokens=5)


def load_pretrained_model(folder, base, name, device):
    return BertTokenizerFast.from_pretrained(folder), Model(folder), None, 64
PY
"""
OWN_ENVIRONMENT = "python3 -m venv env && env/bin/python -m pip install -q -r requirements.txt"
OTHERWISE = {
    # An environment of older packages comes from an index: here the image's own packages stand in for them.
    OWN_ENVIRONMENT: "python3 -m venv --system-site-packages env",
    "git clone --depth 1 https://github.com/microsoft/LLaVA-Med.git code": LLAVA_MED,
    # This checkpoint is a file in a repository of code, not on the hub.
    'curl -L --fail -o model/weights.pth "$base/weight/PlainCNN_trilinear_interpolation_x4.pth"': (
        f"hf download {PLAIN_CNN} --local-dir fetched && cp fetched/weight/*.pth model/weights.pth"
    ),
    'curl -L --fail -o model/PlainCNN.py "$base/model/PlainCNN.py"  # to compare the network below with': (
        "cp fetched/model/PlainCNN.py model/"
    ),
}
PLAN = """mkdir -p plan && cat > plan/plan.md <<'MD'
# Plan
The given checkpoint is downloaded from the hub, loaded once, tried on one case, checked, and run over all cases.
MD"""


# --- what the agent does ------------------------------------------------------------------------------------------


def steps_of(brief: str, cases: list[str]) -> list[CodeStep]:
    """The code of the hints in its order; its programs for all cases after the last try of one case; checks for all."""
    hints = re.findall(r"### Hint for S\d\n\n(.*?)(?=\n\n## S\d |\n\n# Submission)", brief, flags=re.DOTALL)
    found = [
        block for hint in hints for block in re.findall(r"^```(\w+)\n(.*?)^```$", hint, flags=re.DOTALL | re.MULTILINE)
    ]
    steps = [CodeStep(tool="execute_code", language="bash", code=PLAN)]
    scripts = [match[1] for _, code in found if (match := re.match(r"# (\w+\.py)\n", code))]
    python = "env/bin/python" if OWN_ENVIRONMENT in brief else "python3"
    every = [f"{python} {name} {' '.join(cases)}" for name in scripts]
    tried = max(number for number, (_, code) in enumerate(found) if any(name in code for name in scripts)) + 1
    steps += [step_of(language, code) for language, code in found[:tried]]
    steps += [CodeStep(tool="execute_code", language="bash", code=f'cd "$WORKSPACE" && {" && ".join(every)}')]
    steps += [step_of(language, code) for language, code in found[tried:]]
    single = [code for language, code in found if language == "python" and f'case = "{cases[0]}"' in code]
    return steps + [for_all(code, cases) for code in single]


def step_of(language: str, code: str) -> CodeStep:
    """A block as a call: Bash and Python are executed, a program with a name is written."""
    for old, new in OTHERWISE.items():
        code = code.replace(old, new)
    if language == "bash":
        return CodeStep(tool="execute_code", language="bash", code=f"set -e\n{code}")
    if match := re.match(r"# (\w+\.py)\n", code):
        code = f"import os\nopen(os.path.join(os.environ['WORKSPACE'], {match[1]!r}), 'w').write({code!r})"
    return CodeStep(tool="execute_code", language="python", code=code)


def for_all(code: str, cases: list[str]) -> CodeStep:
    """A block that is about one case, for every case."""
    text = f"code = {code!r}\nfor case in {cases!r}:\n    exec(code.replace({cases[0]!r}, case), {{}})"
    return CodeStep(tool="execute_code", language="python", code=text)


# --- the place ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Came:
    """What a run came to, and the end of the calls that failed."""

    outcome: str
    lock: str | None
    verdict: str
    files: list[str]
    statuses: tuple[str, ...]
    made_up: bool
    failed: list[str]


def run_of(campaign: CampaignRecord, task: str) -> Path:
    return campaign.results / "runs" / RunId(agent=task, task=task, tier="lite", repeat=1).path


def turns(campaign: CampaignRecord, task: str) -> list[ScriptedTurn]:
    """What the agent of a task says."""
    plan = plan_of_run(campaign, run_of(campaign, task))
    steps = steps_of(compose_brief(plan).system, plan.manifest.case_ids)
    submit = ScriptedTurn(calls=[SubmitStep(tool="submit_results")])
    return [*(ScriptedTurn(calls=[step]) for step in steps), submit, submit]


def finished(campaign: CampaignRecord, task: str) -> Came:
    """The whole chain of one run."""
    folder = run_of(campaign, task)
    record = agent_run.run_agent(plan_of_run(campaign, folder), say=lambda _: None)
    return scored(campaign, folder, record)


def scored(campaign: CampaignRecord, folder: Path, record: RunRecord) -> Came:
    """What comes after the agent."""
    collect_submission(campaign, folder)
    audit_run(campaign, folder)
    score_metrics(campaign, folder)
    score_judge(campaign, folder)
    score_run(campaign, folder)
    audit = read_record(folder / "audit.json", AuditRecord)
    cases = read_record(folder / "submission.json", SubmissionRecord).cases
    score = read_record(folder / "score.json", ScoreRecord)
    calls = read_record(folder / "conversation.json", Conversation).calls
    failed = [f"{call.call} {call.code[:60]!r}: {call.stderr[-600:]}" for call in calls if call.status != "ok"]
    statuses = tuple(sorted({case.status for case in cases}))
    return Came(record.outcome, score.model_lock, audit.verdict, audit.model_files, statuses, score.made_up, failed)


def make_checkpoints(folder: Path) -> dict[str, FakeHub]:
    """The tiny checkpoints, made with the image's own packages, as hubs by repository."""
    prefix = ["runuser", "-u", USER, "--"] if os.geteuid() == 0 else []
    inside = [
        "--containall",
        "--bind",
        f"{folder}:/made",
        "--bind",
        f"{Path(__file__).parent}:/tests:ro",
        "--pwd",
        "/made",
    ]
    program = ["python3", "/tests/tiny_checkpoints.py", "/made/hub"]
    subprocess.run([*prefix, "apptainer", "exec", *inside, str(RESEARCH), *program], check=True)
    hub = folder / "hub"
    names = [f"{owner.name}/{each.name}" for owner in hub.iterdir() for each in owner.iterdir()]
    return {name: FakeHub(files_below(hub / name), model=name) for name in names}


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def hub_answer(hubs: dict[str, FakeHub], seen: Seen) -> tuple[int, dict[str, str], bytes]:
    """Each repository by its own hub."""
    asked = f"{seen.target}/"
    return next((hub.answer(seen) for name, hub in hubs.items() if f"/{name}/" in asked), (404, {}, b"{}"))


def write_agents(folder: Path, endpoint: str) -> None:
    """An agent for each task, behind one endpoint that tells them apart by their model."""
    agent = {"provider": "openai", "base_url": endpoint, "api_key_env": KEY}
    agents = {"agents": {task: agent | {"model": task} for task in TASKS}}
    (folder / "agents.yaml").write_text(yaml.safe_dump(agents))


def staged_campaign(folder: Path, hub: str) -> CampaignRecord:
    """Seven tasks on their fixtures, an agent for each, the research image for agents."""
    images = folder / "images"
    images.mkdir()
    (images / "research.sif").symlink_to(RESEARCH)
    (images / "scorer.sif").symlink_to(IMAGES / "scorer.sif")
    campaign = make_campaign(
        folder,
        *(ROOT / f"config/tasks/{track}/{task}.yaml" for task, track in TASKS.items()),
        fixtures=True,
        agents_file=str(folder / "agents.yaml"),
        cards=[str(ROOT / "config/tasks")],
        containers={"folder": str(images)},
        sandbox={"backend": "apptainer", "network": "proxied", "egress": {"hub": hub}},
    )
    for task in TASKS:
        fetch_dataset(campaign, campaign.card(task).dataset.name)
        stage_task(campaign, task)
    return campaign


def rehearse(campaign: CampaignRecord, folder: Path) -> None:
    """One run without containers: loads every module, before becoming a user who may not be able to."""
    plain = {"sandbox": SandboxConfig(backend="local", network="open"), "results": str(folder / "rehearsal")}
    local = campaign.model_copy(update={"settings": campaign.settings.model_copy(update=plain)})
    task = "bccd-det-task"
    plan = replace(plan_of_run(campaign, run_of(campaign, task)), folder=run_of(local, task))

    def here(plan: RunPlan, attempt: Any, *_: object) -> LocalSandbox:
        return LocalSandbox(public=plan.public, workspace=attempt.workspace)

    scored(local, plan.folder, agent_run.run_agent(plan, open_sandbox=here, say=lambda _: None))
    assert all(get_track(track).version for track in TASKS.values())


def all_finished(campaign: CampaignRecord) -> dict[str, Came]:
    preflight(campaign, "pathology-caption-100-task")
    return {task: finished(campaign, task) for task in TASKS if not ONLY or task in ONLY}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Came]]:
    """All seven runs, one after the other."""
    if reason := why_not("scorer"):
        pytest.skip(reason)
    if not RESEARCH.is_file():
        pytest.skip(f"no research image at {RESEARCH} (AMB_RESEARCH names another)")
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).chdir(ROOT)
        folder = stack.enter_context(user_folder())
        hubs = make_checkpoints(folder)
        hub = stack.enter_context(WebServer(lambda seen: hub_answer(hubs, seen)))
        campaign = staged_campaign(folder, hub.url)
        os.environ[KEY] = "sk-of-the-lite-routes"
        with ScriptedServer([ScriptedTurn(calls=[SubmitStep(tool="submit_results")])] * 2) as submits:
            write_agents(folder, submits.url)
            rehearse(campaign, folder)
        endpoint = stack.enter_context(ScriptedServer({task: turns(campaign, task) for task in TASKS}))
        write_agents(folder, endpoint.url)
        owner = folder.stat()
        for path in folder.rglob("*"):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        yield as_user(lambda: all_finished(campaign))


def test_every_route_ends_in_valid_outputs_of_the_given_model(results: dict[str, Came]) -> None:
    """No call fails, all cases are valid, the lock is kept, the verdict clean; scores say that the data are made up."""
    assert set(results) == set(ONLY or TASKS)
    wrong = {
        task: came
        for task, came in results.items()
        if (came.outcome, came.lock, came.verdict) != ("submitted", "kept", "clean")
        or came.statuses != ("valid",)
        or came.failed
        or not came.made_up
    }
    assert not wrong, "\n".join(f"{task}: {came}" for task, came in wrong.items())
