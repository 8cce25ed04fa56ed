"""The public benchmark's settings: seven tasks from made-up releases, end to end, with numbers derived by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import releases
import yaml
from toys import _bench

from automedbench.base.cards import TaskCard, find_cards, load_card
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import write_bytes, write_record
from automedbench.base.records import FIXTURE_OF, DetailReport, Manifest, Receipt
from automedbench.base.untrusted.npy import npy_bytes
from automedbench.campaign.load import load_campaign
from automedbench.campaign.presets import Preset, apply_preset, load_preset, preset_names
from automedbench.leaderboard.definitions import PUBLISHED_OVERALL
from automedbench.steps.stage_task import stage_cases
from automedbench.tracks import track_settings
from automedbench.tracks.report_generation.check import read_report

ROOT = Path(__file__).resolve().parents[2]
TASKS = {
    "skin-lesion-cls-task": 100,
    "msd-pancreas-ctsr-task": 20,
    "grazpedwri-det-task": 100,
    "tsg-multiorgan-seg-task": 40,
    "medxpertqa-mm-task": 2005,
    "chexpert-plus-cxr-task": 100,
    "ldct-denoising-task": 20,
}
"""Counts of the public Lite-v0.1: 2 385 cases."""
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "demo/config.yaml").read_text())

CARDS = {card.id: card for card in map(load_card, find_cards([str(ROOT / "config/tasks")]))}


@pytest.fixture(autouse=True)
def _in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


class Staged:
    """A task's made-up release, staged under the preset."""

    def __init__(self, task: str, folder: Path) -> None:
        self.folder, self.raw = folder, folder / "raw"
        digest = releases.make_release(task, self.raw)
        n_cases = len(json.loads((self.raw / "manifest.json").read_text())["cases"])
        self.card = changed(task, count=n_cases, manifest_sha256=digest)
        self.manifest = self.stage()

    def stage(self, card: TaskCard | None = None) -> Manifest:
        """Stage it, perhaps by another card; it is data that was made up, as its receipt says."""
        made_up = {"source": FIXTURE_OF + "path release", "revision": None, "licence": "", "attribution": ""}
        write_record(
            self.raw / "receipt.json",
            Receipt(dataset="release", fetched_at="2026-01-01T00:00:00Z", files={}, **made_up),  # type: ignore[arg-type]
        )
        path = self.folder / "cards" / f"{self.card.id}.yaml"
        write_bytes(path, (card or self.card).model_dump_json(by_alias=True).encode())
        places = (self.folder / "public", self.folder / "private", self.folder / "manifest.json")
        return stage_cases(path, self.raw, *places)

    def truth(self, case: str, name: str) -> bytes:
        """A private file."""
        return (self.folder / "private" / self.card.id / case / name).read_bytes()

    def scored(self, outputs: Mapping[str, bytes], name: str = "run") -> DetailReport:
        """What outputs (path → content) earn, checked by the twin of each metric as well."""
        bench = _bench.Bench(_Toy(self.card), self.folder, self.manifest)
        return bench.hand_in(outputs, self.folder / name, verify=True)


class _Toy:
    def __init__(self, card: TaskCard) -> None:
        self.RESOURCES: dict[str, Path] = {}
        self.CARD = card


def changed(task: str, **changes: Any) -> TaskCard:
    """A task's card under lite-v0.1, with other counts and digests as made-up data has them."""
    preset = load_preset("lite-v0.1")
    tasks = {task: preset.tasks[task].model_copy(update=changes)}
    return apply_preset(preset.model_copy(update={"tasks": tasks}), CARDS, "release")[task]


def skin(staged: Staged) -> tuple[dict[str, bytes], float]:
    """Mole for all: recall 1 of one class and 0 of six, so balanced 1/7 (accuracy would be 2 of 8)."""
    rows = "".join(f"{case},melanocytic_nevi\n" for case in staged.manifest.case_ids)
    return {"predictions.csv": f"patient_id,label\n{rows}".encode()}, 1 / 7


def wrist(staged: Staged) -> tuple[dict[str, bytes], float]:
    """The one fracture found (AP 1), the one letter not (AP 0): mean 1/2. Both files are there."""
    box = {"class": "fracture", "x1": 8, "y1": 12, "x2": 24, "y2": 36, "score": 0.9}
    found = {"0001_a": [box], "0002_b": []}
    return {f"{case}/prediction.json": json.dumps({"boxes": boxes}).encode() for case, boxes in found.items()}, 0.5


def organs(staged: Staged) -> tuple[dict[str, bytes], float]:
    """Background alone: the two structures of the truth earn 0, the other 115 of 117 are rightly absent and earn 1."""
    empty = nib.Nifti1Image(np.zeros((12, 10, 8), np.uint8), np.diag([1.5, 1.5, 3.0, 1.0]))
    path = staged.folder / "empty.nii.gz"
    nib.save(empty, path)
    return {f"{case}/dseg.nii.gz": path.read_bytes() for case in staged.manifest.case_ids}, 115 / 117


def pancreas(staged: Staged) -> tuple[dict[str, bytes], float]:
    """One of two volumes, and that is the truth: SSIM 1 of the scored times a completion of 1/2."""
    return {"pancreas_001/sct.nii.gz": staged.truth("pancreas_001", "truth.nii.gz")}, 0.5


def questions(staged: Staged) -> tuple[dict[str, bytes], float]:
    """The letter A for all four, of which one has it as its answer."""
    outputs = {}
    for case in staged.manifest.case_ids:
        answer = {"question_id": case, "predicted_label": "A", "predicted_answer": "finding a"}
        answer |= {"raw_model_output": "It is finding a.", "model_name": "m", "runtime_s": 1.0}
        outputs[f"{case}/answer.json"] = json.dumps(answer).encode()
    return outputs, 0.25


def reports(staged: Staged) -> tuple[dict[str, bytes], float]:
    """One perfect report and one that is missing: the gate makes it 0 (ROUGE-L alone would be 1/2)."""
    return {"patient64541_study1/report.txt": staged.truth("patient64541_study1", "report.txt")}, 0.0


def slices(staged: Staged) -> tuple[dict[str, bytes], float]:
    """One of two slices, and that is the reference: SSIM 1 and 0."""
    clean = np.load(staged.raw / "reference/L067_a.npy")
    return {"L067_a/enhanced.npy": npy_bytes(clean)}, 0.5


ANSWERS: dict[str, Callable[[Staged], tuple[dict[str, bytes], float]]] = {
    "skin-lesion-cls-task": skin,
    "msd-pancreas-ctsr-task": pancreas,
    "grazpedwri-det-task": wrist,
    "tsg-multiorgan-seg-task": organs,
    "medxpertqa-mm-task": questions,
    "chexpert-plus-cxr-task": reports,
    "ldct-denoising-task": slices,
}


def test_lite_is_the_published_one() -> None:
    """Seven tasks of 2 385 cases."""
    preset = load_preset("lite-v0.1")
    assert {name: task.count for name, task in preset.tasks.items()} == TASKS
    assert sum(TASKS.values()) == 2385


@pytest.mark.parametrize("task", TASKS)
def test_task_from_release_to_score(task: str, tmp_path: Path) -> None:
    """Staged under the release's own ids, handed in, scored: the number of the contract, derived where it is made."""
    staged = Staged(task, tmp_path)
    assert sorted(staged.manifest.case_ids) == sorted(json.loads((staged.raw / "manifest.json").read_text())["cases"])
    outputs, expected = ANSWERS[task](staged)
    assert staged.scored(outputs).task_score == pytest.approx(expected, abs=1e-6)


def test_absent_structures_are_not_counted_by_ours(tmp_path: Path) -> None:
    """The same answer of background alone earns 0 by our card, which leaves out what is in neither."""
    staged = Staged("tsg-multiorgan-seg-task", tmp_path)
    settings = staged.card.metric.settings | {"both_empty": CARDS[staged.card.id].metric.settings["both_empty"]}
    metric = staged.card.metric.model_copy(update={"settings": settings})
    staged.card = staged.card.model_copy(update={"metric": metric})
    assert staged.scored(organs(staged)[0]).task_score == 0


def test_report_gate(tmp_path: Path) -> None:
    """All reports there: 1. One with a character beyond ASCII, of 39 or of 8 001 characters, with 19 letters: 0."""
    staged = Staged("chexpert-plus-cxr-task", tmp_path)
    first, second = staged.manifest.case_ids
    right = staged.truth(first, "report.txt")
    assert staged.scored({f"{case}/report.txt": right for case in (first, second)}, "right").task_score == 1
    for number, bad in enumerate(("caf\u00e9 " * 20, "a" * 39, "ab " * 2667, "a" * 19 + "1" * 40)):
        outputs = {f"{first}/report.txt": right, f"{second}/report.txt": bad.encode()}
        assert staged.scored(outputs, f"bad{number}").task_score == 0
    for text in ("a" * 40, "ab" * 4000, "a" * 20 + "1" * 20):
        assert not read_report(text.encode(), "report.txt", track_settings(staged.card)).problems


def test_report_weights() -> None:
    """0.7 × 0.5 (observations) + 0.3 × 0.8 (ROUGE-L) = 0.59; the components stand in their own order."""
    settings: Any = track_settings(changed("chexpert-plus-cxr-task"))
    assert settings.components == ("ROUGE_L", "micro_average_f1")
    assert settings.combined([0.8, 0.5]) == pytest.approx(0.59)


def break_file(staged: Staged) -> None:
    (staged.raw / "labels.csv").write_text("case_id,label\n")


def add_file(staged: Staged) -> None:
    (staged.raw / "images/more.jpg").write_bytes(b"x")


def lose_file(staged: Staged) -> None:
    (staged.raw / "images/ISIC_0024306.jpg").unlink()


def lose_manifest(staged: Staged) -> None:
    (staged.raw / "manifest.json").unlink()


def other_manifest(staged: Staged) -> None:
    releases.write_manifest(staged.card.id, staged.raw, [*staged.manifest.case_ids[:-1], "ISIC_9999999"])


@pytest.mark.parametrize(
    ("breaks", "told"),
    [
        (break_file, "labels.csv has the SHA-256"),
        (add_file, "more.jpg is not listed"),
        (lose_file, "ISIC_0024306.jpg does not exist"),
        (lose_manifest, "manifest.json"),
        (other_manifest, "the release's is"),
    ],
)
def test_wrong_release_is_refused(breaks: Callable[[Staged], None], told: str, tmp_path: Path) -> None:
    """In at most three lines that say what is wrong; what was staged before stays."""
    staged = Staged("skin-lesion-cls-task", tmp_path)
    breaks(staged)
    with pytest.raises(InfrastructureError, match=told) as caught:
        staged.stage()
    assert len(str(caught.value).splitlines()) <= 3
    assert (tmp_path / "manifest.json").is_file()


def test_release_of_other_cases_is_refused(tmp_path: Path) -> None:
    """Neither another number of cases than the preset's nor ids without files pass, where no digest is known."""
    staged = Staged("skin-lesion-cls-task", tmp_path)
    with pytest.raises(InfrastructureError, match="lists 8 different cases of 8, not 100"):
        staged.stage(changed(staged.card.id))
    path = staged.folder / "cards" / f"{staged.card.id}.yaml"
    places = (tmp_path / "public", tmp_path / "private", tmp_path / "manifest.json")
    with pytest.raises(InfrastructureError, match="not 100"):
        stage_cases(path, staged.raw, *places, excerpt=True)
    other_manifest(staged)
    with pytest.raises(InfrastructureError, match="is only in"):
        staged.stage(changed(staged.card.id, count=8))


@pytest.mark.parametrize("name", preset_names()[1:])
def test_presets_fit_the_cards(name: str) -> None:
    """Every task has a card and its settings are valid ones of its track."""
    preset: Preset = load_preset(name)
    for card in apply_preset(preset, CARDS, None).values():
        track_settings(card)
    assert preset.assumed


def test_campaign_under_a_preset() -> None:
    """One line of config: seven tasks, two tiers, five repeats, and folders of its own. Wrong ones are told."""
    raw = {"preset": "lite-v0.1", "release": "release"}
    campaign = load_campaign({**CONFIG, **raw, "matrix": {**CONFIG["matrix"], "agents": ["careful"]}})
    assert len(campaign.runs) == 7 * 2 * 5 and set(campaign.tasks) == set(TASKS)
    assert campaign.config.results.endswith("-lite-v0.1") and campaign.config.data.private.endswith("-lite-v0.1")
    with pytest.raises(ConfigError, match=r"'lite-v0\.2'.*lite-v0\.1"):
        load_campaign({**CONFIG, **raw, "preset": "lite-v0.2"})
    with pytest.raises(ConfigError, match="release: is required"):
        load_campaign({**CONFIG, **raw, "release": None})


def test_published_numbers_are_the_same_on_the_page_and_in_the_docs() -> None:
    """Both copy table 4 of the paper; rows of docs/presets.md are agent, five tracks, Overall."""
    rows = re.findall(r"^\| ([^|]+) \|((?: \d+\.\d \|){6})$", (ROOT / "docs/presets.md").read_text(), re.MULTILINE)
    told = {agent: tuple(map(float, re.findall(r"[\d.]+", numbers))) for agent, numbers in rows}
    assert {agent: told[agent] for agent in PUBLISHED_OVERALL} == PUBLISHED_OVERALL
