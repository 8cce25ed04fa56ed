"""The public benchmark's settings: seven tasks from made-up releases, end to end, with numbers derived by hand."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import releases
import yaml
from toys import _bench

from automedbench.base.cards import LiteModel, TaskCard, find_cards, load_card
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import hash_json, read_record
from automedbench.base.records import DetailReport, Receipt
from automedbench.campaign import load
from automedbench.campaign.load import load_campaign
from automedbench.campaign.presets import load_preset
from automedbench.campaign.record import CampaignRecord, read_campaign
from automedbench.datasets.release import UNVERIFIED, check_release
from automedbench.leaderboard.definitions import PUBLISHED_OVERALL
from automedbench.metrics.observations import observation_f1
from automedbench.metrics.rouge import rouge_l
from automedbench.steps.fetch_dataset import fetch_dataset
from automedbench.steps.inside.second_opinion import ask_release
from automedbench.steps.stage_task import stage_task
from automedbench.tracks import track_settings
from automedbench.tracks.report_generation.check import read_report
from automedbench.tracks.report_generation.settings import ReportSettings
from automedbench.tracks.report_generation.text import extract, normalise, tokens

ROOT = Path(__file__).resolve().parents[2]
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "demo/config.yaml").read_text())

CARDS = {card.id: card for card in map(load_card, find_cards([str(ROOT / "config/tasks")]))}


@pytest.fixture(autouse=True)
def _in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up release with few cases, shared by the tests that leave it as it is."""
    root = tmp_path_factory.mktemp("release")
    releases.make_release(root)
    return root


def load_lite(release: Path, folder: Path, counts: Mapping[str, int] = releases.FEW) -> CampaignRecord:
    """The campaign that two lines of the configuration make of a release with so many cases, and its record."""
    preset = load_preset("lite-v0.1")
    tasks = {name: task.model_copy(update={"count": counts.get(name, 1)}) for name, task in preset.tasks.items()}
    data = {name: str(folder / name) for name in ("raw", "public", "private", "manifests")}
    own = {"preset": "lite-v0.1", "release": str(release), "data": data, "results": str(folder / "results")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "load_preset", lambda _: preset.model_copy(update={"tasks": tasks}))
        campaign = load_campaign(CONFIG | own | {"datasets": {}, "matrix": CONFIG["matrix"] | {"agents": ["careful"]}})
    load.write_campaign(campaign)
    return read_campaign(Path(load.campaign_file(campaign)))


class Staged:
    """A task of the release, fetched and staged as the workflow does."""

    def __init__(self, task: str, release: Path, folder: Path, counts: Mapping[str, int] = releases.FEW) -> None:
        self.campaign = load_lite(release, folder, counts)
        self.card, self.folder = self.campaign.card(task), folder
        for name in ("public", "private"):
            (folder / name).symlink_to(f"{name}-lite-v0.1")
        fetch_dataset(self.campaign, self.card.dataset.name)
        self.manifest = stage_task(self.campaign, task)

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


def skin(staged: Staged) -> tuple[dict[str, bytes], float]:
    """Mole for all: recall 1 of one class and 0 of six, so balanced 1/7 (accuracy would be 2 of 8)."""
    rows = "".join(f"{case},melanocytic_nevi\n" for case in staged.manifest.case_ids)
    return {"predictions.csv": f"patient_id,label\n{rows}".encode()}, 1 / 7


def wrist(staged: Staged) -> tuple[dict[str, bytes], float]:
    """The one fracture found (AP 1), the one letter not (AP 0): mean 1/2. Both files are there."""
    box = {"class": "fracture", "x1": 8, "y1": 12, "x2": 24, "y2": 36, "score": 0.9}
    found = dict(zip(staged.manifest.case_ids, ([box], []), strict=True))
    return {f"{case}/prediction.json": json.dumps({"boxes": boxes}).encode() for case, boxes in found.items()}, 0.5


def organs(staged: Staged) -> tuple[dict[str, bytes], float]:
    """Background alone: the two structures of the truth earn 0, the other 115 of 117 are rightly absent and earn 1."""
    empty = nib.Nifti1Image(np.zeros((12, 10, 8), np.uint8), np.diag([-1.5, -1.5, 3.0, 1.0]))
    path = staged.folder / "empty.nii.gz"
    nib.save(empty, path)
    return {f"{case}/dseg.nii.gz": path.read_bytes() for case in staged.manifest.case_ids}, 115 / 117


def pancreas(staged: Staged) -> tuple[dict[str, bytes], float]:
    """One of two volumes, and that is the truth: SSIM 1 of the scored times a completion of 1/2."""
    first, _ = staged.manifest.case_ids
    return {f"{first}/sct.nii.gz": staged.truth(first, "truth.nii.gz")}, 0.5


def questions(staged: Staged) -> tuple[dict[str, bytes], float]:
    """The letter A for all four, of which one has it as its answer."""
    outputs = {}
    for case in staged.manifest.case_ids:
        answer = {"question_id": case, "predicted_label": "A", "predicted_answer": "finding a"}
        answer |= {"raw_model_output": "It is finding a.", "model_name": "m", "runtime_s": 1.0}
        outputs[f"{case}/answer.json"] = json.dumps(answer).encode()
    return outputs, 0.25


def reports(staged: Staged) -> tuple[dict[str, bytes], float]:
    """The report of the clear lungs for both: 1, and for the one with an effusion F1 0 and a part of ROUGE-L.

    Its finding is overridden by "without a pleural" (else F1 would be 2/3). "A … pleural effusion … on … side" are 5
    words that 17 and 13 have in common in order, "well-expanded" being one: F1 10/30 (two words: 10/31).
    """
    text = f"{releases.CLEAR}\n".encode()
    return {f"{case}/report.txt": text for case in staged.manifest.case_ids}, (1 + 0.3 * 10 / 30) / 2


def slices(staged: Staged) -> tuple[dict[str, bytes], float]:
    """One of two slices, and that is the reference: SSIM 1 and 0."""
    first, _ = staged.manifest.case_ids
    return {f"{first}/enhanced.npy": staged.truth(first, "reference.npy")}, 0.5


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
    assert {name: task.count for name, task in preset.tasks.items()} == releases.FULL
    assert sum(releases.FULL.values()) == 2385


@pytest.mark.parametrize("task", releases.FULL)
def test_task_from_release_to_score(task: str, release: Path, tmp_path: Path) -> None:
    """Staged under the release's own ids, handed in, scored: the number of the contract, derived where it is made."""
    staged = Staged(task, release, tmp_path)
    assert len(staged.manifest.cases) == releases.FEW[task] and UNVERIFIED in staged.manifest.sampling
    outputs, expected = ANSWERS[task](staged)
    assert staged.scored(outputs).task_score == pytest.approx(expected, abs=1e-6)


def test_inputs_are_those_of_the_release(release: Path, tmp_path: Path) -> None:
    """The degraded volume is not degraded again, nothing is turned, and no answer lies among what agents see."""
    staged = Staged("msd-pancreas-ctsr-task", release, tmp_path)
    for case in staged.manifest.case_ids:
        place = next(release.glob(f"benchmarks/*/data/*/public/{case}/ct.nii.gz"))
        given, own = nib.load(place), nib.load(tmp_path / "public" / staged.card.id / case / "ct.nii.gz")
        assert np.array_equal(given.get_fdata(), own.get_fdata()) and np.array_equal(given.affine, own.affine)
    asked = Staged("medxpertqa-mm-task", release, (tmp_path / "vqa").resolve())
    texts = [path.read_text() for path in (tmp_path / "vqa/public" / asked.card.id).rglob("question.json")]
    assert len(texts) == 4 and not any("reference_answer" in text for text in texts)


def test_a_release_may_lack_a_class(tmp_path: Path) -> None:
    """Five images of five of the seven classes: the mean is over these, of which a sixth's name is right for none."""
    counts = releases.FEW | {"skin-lesion-cls-task": 5}
    releases.make_release(tmp_path / "release", counts)
    staged = Staged("skin-lesion-cls-task", tmp_path / "release", tmp_path, counts)
    assert staged.scored(skin(staged)[0], "moles").task_score == 0
    rows = "".join(f"{case},melanoma\n" for case in staged.manifest.case_ids)
    right_once = {"predictions.csv": f"patient_id,label\n{rows}".encode()}
    assert staged.scored(right_once, "melanomas").task_score == pytest.approx(1 / 5)


def test_guidance_is_that_of_the_release(release: Path, tmp_path: Path) -> None:
    """Hints as they are, braces included, and the locked model stand in the lite brief; pins of our hints do not."""
    card = load_lite(release, tmp_path).card("ldct-denoising-task")
    assert card.briefs.lite_model == LiteModel(
        name="someone/locked-model", reference="someone/locked-model", notes="made up"
    )
    assert card.briefs.route is None
    assert all("run `cat {{ here }}`" in text for text in card.briefs.hints.values()) and len(card.briefs.hints) == 3


def test_absent_structures_are_not_counted_by_ours(release: Path, tmp_path: Path) -> None:
    """The same answer of background alone earns 0 by our card, which leaves out what is in neither."""
    staged = Staged("tsg-multiorgan-seg-task", release, tmp_path)
    settings = staged.card.metric.settings | {"both_empty": CARDS[staged.card.id].metric.settings["both_empty"]}
    metric = staged.card.metric.model_copy(update={"settings": settings})
    staged.card = staged.card.model_copy(update={"metric": metric})
    assert staged.scored(organs(staged)[0]).task_score == 0


def test_report_gate(release: Path, tmp_path: Path) -> None:
    """All reports right: 1. One missing, with a character beyond ASCII, of 39 or 8 001 characters, 19 letters: 0."""
    staged = Staged("chexpert-plus-cxr-task", release, tmp_path)
    right = {f"{case}/report.txt": staged.truth(case, "report.txt") for case in staged.manifest.case_ids}
    assert staged.scored(right, "right").task_score == 1
    (first, text), (second, _) = right.items()
    assert staged.scored({first: text}, "missing").task_score == 0
    for number, bad in enumerate(("caf\u00e9 " * 20, "a" * 39, "ab " * 2667, "a" * 19 + "1" * 40)):
        assert staged.scored({first: text, second: bad.encode()}, f"bad{number}").task_score == 0
    for good in ("a" * 40, "ab" * 4000, "a" * 20 + "1" * 20):
        assert not read_report(good.encode(), "report.txt", track_settings(staged.card)).problems


def test_published_rule_for_findings() -> None:
    """A heading in capitals with text under it; small letters are none, an empty one is passed over."""
    assert extract("IMPRESSION: none.\nFINDINGS:\nFINDING: clear.\nNOTE: x", "published") == "clear."
    assert extract("Findings: clear. ", "published") == "Findings: clear."


def test_scorer_of_the_release_that_fails_is_told(release: Path, tmp_path: Path) -> None:
    """The stand-in has none for this track: task and kind of error, in one line."""
    with pytest.raises(InfrastructureError, match=r"^ldct-denoising-task: the release's scorer failed: KeyError: .*$"):
        ask_release(release, "ldct-denoising-task", tmp_path, tmp_path)


GOLDEN = ROOT.parent / "shared/data/release/lite-report-golden.json"


@pytest.mark.skipif(not GOLDEN.is_file(), reason="no golden scores of the public report scorer beside the repository")
def test_golden_report_scores() -> None:
    """196 pairs of made-up findings as the public scorer rates them; it rounds both parts to four places."""
    golden = json.loads(GOLDEN.read_text())
    settings = ReportSettings.model_validate(
        load_preset("lite-v0.1").tracks["report_generation"].settings | {"observations": {"any": {"positive": ["a"]}}}
    )
    texts = [normalise(extract(text, "published")) for text in golden["texts"]]
    for pair in golden["pairs"]:
        reference, candidate = pair["reference"], pair["prediction"]
        found = observation_f1(*(frozenset(golden["positive"][each]) for each in (reference, candidate)))
        words = rouge_l(tokens(texts[reference]), tokens(texts[candidate]))
        assert found == pytest.approx(pair["observation_f1"], abs=1e-4)
        assert settings.combined([words, found]) == pytest.approx(pair["score"], abs=1e-4)


def more_cases(root: Path) -> None:
    shutil.copytree(next(root.glob("**/ISIC_00000001")), next(root.glob("**/SkinLesionISIC/public")) / "ISIC_9")


def no_answer(root: Path) -> None:
    next(root.glob("**/private/ISIC_00000001/label.json")).unlink()


@pytest.mark.parametrize(
    ("breaks", "told"),
    [(more_cases, "holds 9 cases of skin-lesion-cls-task, the release 8"), (no_answer, "answer of ISIC")],
)
def test_wrong_release_is_refused(breaks: Callable[[Path], None], told: str, tmp_path: Path) -> None:
    """In at most three lines that say what is wrong."""
    releases.make_release(tmp_path / "release")
    breaks(tmp_path / "release")
    with pytest.raises(InfrastructureError, match=told) as caught:
        Staged("skin-lesion-cls-task", tmp_path / "release", tmp_path)
    assert len(str(caught.value).splitlines()) <= 3


def test_copy_of_another_revision_is_refused(release: Path, tmp_path: Path) -> None:
    """A card that knows the release's digest takes no other content, and its own without a remark."""
    staged = Staged("skin-lesion-cls-task", release, tmp_path)
    raw = Path(staged.campaign.settings.data.raw, staged.card.dataset.name)
    files = {path: entry.sha256 for path, entry in read_record(raw / "receipt.json", Receipt).files.items()}
    source = staged.card.dataset.sources[0]
    for digest, told in ((hash_json(files), "digest"), ("0" * 64, None)):
        known = source.model_copy(update={"revision": digest})
        card = staged.card.model_copy(update={"dataset": staged.card.dataset.model_copy(update={"sources": [known]})})
        if told:
            assert check_release(card, raw).startswith(told)
        else:
            with pytest.raises(InfrastructureError, match="the copy has the digest"):
                check_release(card, raw)


def test_campaign_under_a_preset(release: Path, tmp_path: Path) -> None:
    """Two lines of config: seven tasks, two tiers, five repeats, and folders of its own. Wrong ones are told."""
    raw = CONFIG | {
        "preset": "lite-v0.1",
        "release": str(release),
        "matrix": CONFIG["matrix"] | {"agents": ["careful"]},
    }
    campaign = load_campaign(raw)
    assert len(campaign.runs) == 7 * 2 * 5 and set(campaign.tasks) == set(releases.FULL)
    assert campaign.config.results.endswith("-lite-v0.1") and campaign.config.data.private.endswith("-lite-v0.1")
    with pytest.raises(ConfigError, match=r"'lite-v0\.2'.*lite-v0\.1"):
        load_campaign(raw | {"preset": "lite-v0.2"})
    with pytest.raises(ConfigError, match="release: is required"):
        load_campaign(raw | {"release": None})
    with pytest.raises(ConfigError, match=r"model_info\.yaml"):
        load_campaign(raw | {"release": str(tmp_path)})


def test_published_numbers_are_the_same_on_the_page_and_in_the_docs() -> None:
    """Both copy table 4 of the paper; rows of docs/presets.md are agent, five tracks, Overall."""
    rows = re.findall(r"^\| ([^|]+) \|((?: \d+\.\d \|){6})$", (ROOT / "docs/presets.md").read_text(), re.MULTILINE)
    told = {agent: tuple(map(float, re.findall(r"[\d.]+", numbers))) for agent, numbers in rows}
    assert {agent: told[agent] for agent in PUBLISHED_OVERALL} == PUBLISHED_OVERALL
