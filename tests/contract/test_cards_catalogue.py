"""The card format carries all 48 tasks of the benchmark, although most of them come later.

Every entry of the task catalogue is written as a card, read back, and compared fact by fact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml
from make_schemas import DOCUMENTS

from automedbench.base.cards import Confidence, TaskCard, find_cards, load_card
from automedbench.tracks import track_settings
from automedbench.tracks.enhancement.settings import BaselineQuality
from automedbench.tracks.enhancement.truth import make_bands

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = ROOT.parent / "shared/spec/task-catalogue.yaml"
ENTRIES: list[dict[str, Any]] = yaml.safe_load(CATALOGUE.read_text())["tasks"] if CATALOGUE.is_file() else []
TRACKS = {"report": "report_generation"}
FORMATS = (".nii.gz", ".npy", ".json", ".txt", ".csv")
# Facts with no field of their own belong to the track, which validates metric.settings.
TRACK_FACTS = (
    *("task_type", "answer_mode", "valid_labels", "smoke_questions", "text_limits", "lesion_ratio_min"),
    *("iou_threshold", "reference_text", "evaluator_aliases", "label_conversion", "label_gaps", "label_note"),
    *("label_alias", "shape_rule"),
)


def as_card(entry: dict[str, Any]) -> dict[str, Any]:
    """A catalogue entry in the format of a card."""
    lite = entry["lite_model"]
    return {
        "id": entry["id"],
        "version": 1,
        "track": TRACKS.get(entry["track"], entry["track"]),
        "title": entry["title"],
        "aliases": [*entry.get("evaluator_aliases", []), *filter(None, [entry.get("website_task_id")])],
        "modality": entry["modality"],
        "unit": entry["unit"],
        "description": entry["metric"]["primary"],
        "dataset": dataset(entry),
        "staging": staging(entry),
        "inputs": [
            {
                "file": re.sub(r"^public/<\w+>/", "", path).split(" (")[0],
                "format": entry.get("input_spec", ""),
                "description": path,
            }
            for path in entry["input_files"]
        ],
        "outputs": [output(path, entry) for path in entry["output_files"]],
        "targets": targets(entry),
        "metric": {"name": entry["metric"]["primary"], "settings": settings(entry)},
        "medals": medals(entry["medal"]),
        "limits": {"time_limit_s": entry["time_limit_s"]},
        "briefs": {
            "lite_model": {
                "name": lite["name"],
                "reference": lite.get("ref"),
                "notes": "; ".join([lite.get("notes", ""), *lite.get("alternatives", [])]).strip("; "),
            },
            "standard_candidates": entry["standard_candidates"],
        },
        "provenance": provenance(entry),
        "open_questions": entry["conflicts"],
    }


def dataset(entry: dict[str, Any]) -> dict[str, Any]:
    known = entry["dataset"]
    return {
        "name": re.sub(r"[^A-Za-z0-9._-]+", "-", known["name"]).strip("-").lower(),
        "title": known["name"],
        "year": int(known["year"]),
        "access": entry["access"],
        "licence": entry["license"],
        "attribution": known["name"],
        "redistribution": f"{entry['release_policy']}; {entry['release_gate']}",
        "homepages": entry["source_urls"],
        "sources": [
            {"kind": "manual", "where": url, "revision": str(known["version"]) if "version" in known else None}
            for url in entry["source_urls"]
        ],
        "how_to_get": entry.get("access_note") or entry["release_gate"],
        "layout": yaml.safe_dump(entry["upstream_layout"]),
        "llm_egress": "contract" if entry["access"] == "credentialed" else "allowed",
    }


def staging(entry: dict[str, Any]) -> dict[str, Any]:
    prefix = re.split(r"[_%-]", entry["case_id_prefix"]["value"] or "case")[0]
    degradation = {"description": entry["degradation"]} if "degradation" in entry else None
    return {
        "reader": "later",
        "options": {"paths": entry["upstream_layout"].get("paths", [])},
        "sampling": {"rule": entry["sampling_rule"]["rule"], "count": entry["n_eval"]["value"]},
        "case_prefix": prefix,
        "degradation": degradation,
    }


def output(path: str, entry: dict[str, Any]) -> dict[str, Any]:
    bare = re.split(r" \(| with ", path.removeprefix("or "))[0]
    place = re.sub(r"<(case|question)_id>", "{case}", bare).split("/", 1)[1]
    suffix = next(suffix for suffix in FORMATS if place.endswith(suffix))
    return {
        "path": place,
        "format": suffix.lstrip("."),
        "max_bytes": 10**9,
        "description": f"{path}; {entry.get('output_spec', '')}",
    }


def targets(entry: dict[str, Any]) -> list[dict[str, Any]]:
    described = entry.get("class_descriptions", {})
    return [
        {
            "id": target["id"],
            "name": target["name"],
            "source": target.get("source_code"),
            "description": described.get(target["name"], ""),
        }
        for target in entry["targets"]
    ]


def settings(entry: dict[str, Any]) -> dict[str, Any]:
    facts = {name: entry[name] for name in TRACK_FACTS if name in entry}
    files = {target["name"]: target["file"] for target in entry["targets"] if "file" in target}
    return {
        **facts,
        "files": files,
        "diagnostics": entry["metric"].get("diagnostic", []),
        "baselines": entry["medal"].get("baselines_n100", {}),
    }


def medals(medal: dict[str, Any]) -> list[dict[str, Any]]:
    if "A" in medal:
        names = {"psnr_min": "psnr", "ssim_min": "ssim"}
        return [{"name": band, "at_least": {names[key]: value for key, value in medal[band].items()}} for band in "ABC"]
    return [{"name": name, "at_least": {medal["metric"]: medal[name]}} for name in ("good", "okay") if name in medal]


def provenance(entry: dict[str, Any]) -> dict[str, str]:
    said = {
        "staging.sampling": entry["sampling_rule"]["confidence"],
        "staging.sampling.count": entry["n_eval"]["confidence"],
        "medals": entry["medal"].get("confidence", "unknown"),
        "briefs.lite_model": entry["lite_model"]["confidence"],
    }
    return {key: next(known for known in get_args(Confidence) if known in text) for key, text in said.items()}


def numbers(value: Any) -> list[float]:
    """All numbers in nested data, sorted."""
    if isinstance(value, dict):
        return sorted(number for item in value.values() for number in numbers(item))
    return [float(value)] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


Fact = tuple[Callable[[dict[str, Any]], Any], Callable[[TaskCard], Any]]
ESSENTIAL: dict[str, Fact] = {
    "id": (lambda entry: entry["id"], lambda card: card.id),
    "track": (lambda entry: TRACKS.get(entry["track"], entry["track"]), lambda card: card.track),
    "title": (lambda entry: entry["title"], lambda card: card.title),
    "modality": (lambda entry: entry["modality"], lambda card: card.modality),
    "unit": (lambda entry: entry["unit"], lambda card: card.unit),
    "data set and year": (
        lambda entry: (entry["dataset"]["name"], int(entry["dataset"]["year"])),
        lambda card: (card.dataset.title, card.dataset.year),
    ),
    "sources": (lambda entry: entry["source_urls"], lambda card: [source.where for source in card.dataset.sources]),
    "access and licence": (
        lambda entry: (entry["access"], entry["license"]),
        lambda card: (card.dataset.access, card.dataset.licence),
    ),
    "layout": (lambda entry: entry["upstream_layout"], lambda card: yaml.safe_load(card.dataset.layout)),
    "number of cases": (lambda entry: entry["n_eval"]["value"], lambda card: card.staging.sampling.count),
    "sampling": (lambda entry: entry["sampling_rule"]["rule"], lambda card: card.staging.sampling.rule),
    "degradation": (
        lambda entry: entry.get("degradation"),
        lambda card: (card.staging.degradation or {}).get("description"),
    ),
    "inputs": (lambda entry: len(entry["input_files"]), lambda card: len(card.inputs)),
    "outputs": (
        lambda entry: [re.findall(r"[\w.]+\.(?:nii\.gz|npy|json|txt|csv)", path)[0] for path in entry["output_files"]],
        lambda card: [output.path.split("/")[-1] for output in card.outputs],
    ),
    "targets": (
        lambda entry: [(target["id"], target["name"], target.get("source_code")) for target in entry["targets"]],
        lambda card: [(target.id, target.name, target.source) for target in card.targets],
    ),
    "files of targets": (
        lambda entry: {target["name"]: target["file"] for target in entry["targets"] if "file" in target},
        lambda card: card.metric.settings["files"],
    ),
    "track's own facts": (
        lambda entry: {name: entry[name] for name in TRACK_FACTS if name in entry},
        lambda card: {name: card.metric.settings[name] for name in TRACK_FACTS if name in card.metric.settings},
    ),
    "thresholds of medals": (
        lambda entry: sorted(
            number
            for name, value in entry["medal"].items()
            if name in ("good", "okay", "A", "B", "C")
            for number in (numbers(value))
        ),
        lambda card: sorted(number for medal in card.medals for number in medal.at_least.values()),
    ),
    "time limit": (lambda entry: entry["time_limit_s"], lambda card: card.limits.time_limit_s),
    "model of the lite tier": (
        lambda entry: (entry["lite_model"]["name"], entry["lite_model"].get("ref")),
        lambda card: (card.briefs.lite_model.name, card.briefs.lite_model.reference),
    ),
    "candidates of the standard tier": (
        lambda entry: entry["standard_candidates"],
        lambda card: card.briefs.standard_candidates,
    ),
    "what is open": (lambda entry: entry["conflicts"], lambda card: card.open_questions),
    "aliases": (
        lambda entry: sorted([*entry.get("evaluator_aliases", []), *filter(None, [entry.get("website_task_id")])]),
        lambda card: sorted(card.aliases),
    ),
}


def test_catalogue_is_complete(shared: Path) -> None:
    """48 tasks in seven tracks; a shorter list would make the tests below say less."""
    assert len(ENTRIES) == 48
    assert {TRACKS.get(entry["track"], entry["track"]) for entry in ENTRIES} == {
        "segmentation",
        "enhancement",
        "vqa",
        "report_generation",
        "detection",
        "classification",
        "synthesis",
    }


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["id"])
def test_card_format_carries_the_task(entry: dict[str, Any], tmp_path: Path) -> None:
    """Written as YAML and read back, every essential fact is the same, and the JSON Schema agrees."""
    path = tmp_path / f"{entry['id']}.yaml"
    path.write_text(yaml.safe_dump(as_card(entry), allow_unicode=True))
    card = load_card(path)
    lost = {name for name, (asked, kept) in ESSENTIAL.items() if asked(entry) != kept(card)}
    assert lost == set()
    jsonschema.validate(yaml.safe_load(path.read_text()), DOCUMENTS["task-card"].model_json_schema())


def test_shipped_cards_agree_with_the_catalogue(root: Path, shared: Path) -> None:
    """Track, classes and access of a shipped card are those of the catalogue."""
    known = {entry["id"]: entry for entry in ENTRIES}
    for path in sorted((root / "config/tasks").rglob("*.yaml")):
        if (entry := known.get(path.stem)) is None:
            continue  # a task of one's own
        card = load_card(path)
        assert card.track == TRACKS.get(entry["track"], entry["track"])
        assert [target.name for target in card.targets] == [target["name"] for target in entry["targets"]]
        assert card.dataset.access == entry["access"]


# --- the public Full release ----------------------------------------------------------------------------------

CARDS = {card.id: card for card in map(load_card, find_cards([str(ROOT / "config/tasks")]))}
FACTS = [
    line.split("\t") for line in (ROOT / "tests/full_v01.tsv").read_text().splitlines() if not line.startswith("#")
][1:]


def fact_of(card: TaskCard, what: str) -> Any:
    """What the card says, in the form of the table."""
    settings = track_settings(card).model_dump(mode="json")
    match what:
        case "outputs":
            return [output.path.removeprefix("{case}/") for output in card.outputs if not output.optional]
        case "targets":
            return len(card.targets)
        case "count":
            return card.staging.sampling.count
        case "medals":
            return [next(iter(medal.at_least.values())) for medal in card.medals]
        case "lite":
            return card.briefs.lite_model.reference if card.briefs.lite_model else None
        case "affine":
            return "must be the input's"
        case "bands" if settings["baselines"]:
            baselines = {name: BaselineQuality.model_validate(value) for name, value in settings["baselines"].items()}
            found = make_bands(card.id, baselines, classical=settings["classical"], source="published").bands
            return [[band.ssim_min, band.psnr_min] for _, band in sorted(found.items())]
        case "bands":
            return "computed"
    return settings[what]


@pytest.mark.parametrize(("task", "what", "published", "note"), FACTS, ids=[f"{row[0]}-{row[1]}" for row in FACTS])
def test_differences_from_the_full_release_are_told(task: str, what: str, published: str, note: str) -> None:
    """A published fact is followed, or the card's open questions say that it is not, in the words of the note."""
    card = CARDS[task]
    followed = fact_of(card, what) == json.loads(published)
    assert followed is not bool(note), f"{what}: {fact_of(card, what)}"
    assert not note or any(note in question for question in card.open_questions)


def test_facts_cover_the_known_contracts() -> None:
    """22 contracts of the Full release, of which two rows are of three tasks together."""
    assert len({task for task, *_ in FACTS}) == 25 and len(FACTS) > 50
