"""Model lock and models that ran: what the trace saw opened and the egress log saw fetched, against the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_audit import ENFORCED, RUN, submission
from test_error_codes import BATCH, call, conversation
from test_scoring import audit_record, detail_report, run_record, submission_record

from automedbench.base.cards import load_card
from automedbench.base.checkpoints import load_checkpoints
from automedbench.base.records import RunId
from automedbench.sandbox.evidence.audit import AuditEvidence, audit, read_evidence
from automedbench.sandbox.evidence.models import list_fetched_models, model_lock
from automedbench.sandbox.evidence.trace import MODEL, Seen, make_findings
from automedbench.scoring.codes import error_codes

ROOT = Path(__file__).resolve().parents[2]
TABLE = load_checkpoints(ROOT / "config/checkpoints.yaml")
CACHE = "/workspace/.cache/huggingface/hub"
TORCH = "/framework/torch_cpu"
SHARD = "ef2190dc6c2a940e60f03f5fdb4dddb2320eb87801aeca5c40b0a28ce8aa420e"
OTHER = f"{CACHE}/models--Qwen--Qwen2.5-VL-3B-Instruct/blobs/{'a' * 64}"
HUB = "https://huggingface.co"
FRACTURES = "https://github.com/RuiyangJu/Bone_Fracture_Detection_YOLOv8/releases/download/Trained_model/best.pt"
LOCKS: list[tuple[str, str, list[str], list[str], str]] = [
    # what happened, checkpoint, opened, fetched, lock
    ("from the cache", "llava-med", [f"{CACHE}/models--microsoft--llava-med-v1.5-mistral-7b/blobs/1f"], [], "kept"),
    ("by its checksum alone", "llava-med", [f"/workspace/model/{SHARD}.bin"], [], "kept"),
    ("fetched by the mirror", "vista3d", ["/workspace/model/vista3d/models/model.pt"],
     [f"{HUB}/MONAI/vista3d/resolve/0.5.8/models/model.pt"], "kept"),
    ("a release by its address", "yolov8-grazpedwri", [], [FRACTURES], "kept"),
    ("a name of its own", "drunet", ["/workspace/m/drunet_deepinv_gray_finetune_26k.pth", TORCH], [], "kept"),
    ("unpacked below its name", "nnunet-msd-heart", ["/workspace/m/Task002_Heart/fold_0/m.pth"], [], "kept"),
    ("the given one beside another", "llava-med", [OTHER], [f"{HUB}/Microsoft/LLaVA-Med-v1.5-Mistral-7B/resolve/main/"
     "model-00001-of-00004.safetensors"], "kept"),
    ("another from the cache", "llava-med", [OTHER, TORCH], [], "violated"),
    ("another in its folder", "vista3d", ["/workspace/m/swin.pt"], [f"{HUB}/a/b/resolve/main/swin.pt"], "violated"),
    ("another was fetched and never opened", "vista3d", [], [f"{HUB}/a/b/resolve/main/swin.pt"], "unknown"),
    ("another, and weights of unknown origin", "llava-med", [OTHER, "/workspace/model/part.bin"], [], "unknown"),
    ("unknown weights", "kept-nowhere", ["/workspace/checkpoint_final.pth"], [], "unknown"),
    ("a framework alone", "llava-med", [TORCH], [], "unknown"),
    ("nothing", "llava-med", [], [], "unknown"),
]  # fmt: skip


def test_locks() -> None:
    """By hand; what cannot be attributed is unknown."""
    found = [(what, model_lock(TABLE.get(name), opened, fetched)) for what, name, opened, fetched, _ in LOCKS]
    assert found == [(what, lock) for what, *_, lock in LOCKS]


def request(path: str, **changes: Any) -> str:
    entry = {"method": "GET", "host": "huggingface.co", "path": path, "status": 200}
    return json.dumps(entry | changes)


def test_the_egress_log_tells_what_was_fetched(tmp_path: Path) -> None:
    """Weights that came, each once; no questions, refusals, tunnels or settings; no line that a kill cut."""
    weights = "/o/m/resolve/main/model.safetensors"
    lines = [
        *(request(weights), request(weights, status=206), request("/o/m/resolve/main/config.json")),
        *(request("/o/m/resolve/main/a.bin", status=403), request("/o/m/resolve/main/b.bin", method="HEAD")),
        *(request("", method="CONNECT"), request("/o/m/resolve/main/c.pt")[:-4]),
    ]
    (tmp_path / "egress.jsonl").write_text("\n".join(lines))
    assert list_fetched_models(tmp_path / "egress.jsonl") == [f"{HUB}{weights}"]
    assert list_fetched_models(tmp_path / "none") == []


def test_models_are_evidence_and_no_findings(tmp_path: Path) -> None:
    """They pass through the log as notices, and the audit takes them out again."""
    told = [each.model_dump(mode="json") for each in make_findings(Seen(models=(TORCH, OTHER)), turn=1, call=2)]
    lines = [json.dumps({"type": "finding", "finding": each}) for each in told]
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    assert {each["rule"] for each in told} == {MODEL} and len({each["id"] for each in told}) == 2
    assert read_evidence(tmp_path / "events.jsonl") == AuditEvidence((), None, (TORCH, OTHER))


@pytest.mark.parametrize(
    ("tier", "traced", "models", "expected"),
    [
        ("lite", True, (OTHER,), ("violated", True)),
        ("lite", True, (), ("unknown", False)),
        ("lite", False, (), ("unknown", None)),
        ("standard", True, (OTHER,), (None, True)),
    ],
)
def test_the_audit_records_them(tier: Any, traced: bool, models: tuple[str, ...], expected: tuple[Any, Any]) -> None:
    record = audit(
        RunId(**RUN.model_dump() | {"tier": tier}),
        AuditEvidence((), None, models),
        submission(),
        ENFORCED.model_copy(update={"trace": traced}),
        max_warnings=1,
        checkpoint=TABLE["llava-med"],
    )
    assert (record.model_lock, record.model_opened, record.verdict) == (*expected, "clean")


CARDS = {
    "vqa": "vqa/vqa-rad",
    "report_generation": "report_generation/iu-xray-report",
    "detection": "detection/bccd-det",
}
CALLS = [
    # track, provider, what the audit says, and whether the code is given
    ("vqa", "openai", False, True),
    ("report_generation", "command", False, True),
    ("detection", "openai", False, False),  # boxes may come of thresholds
    ("vqa", "baseline", False, False),
    ("vqa", "openai", None, False),
    ("vqa", "openai", True, False),
]


def test_answers_without_any_model_are_told(root: Path) -> None:
    for track, provider, opened, given in CALLS:
        card = load_card(root / f"config/tasks/{CARDS[track]}-task.yaml")
        detail = detail_report(0.1, 1.0, medal="fail").model_copy(update={"track": track})
        audited = audit_record().model_copy(update={"model_opened": opened})
        said = conversation([call(1, BATCH, stage="S4")])
        records = (
            run_record(provider=provider, origin=provider),
            submission_record("valid", "valid"),
            detail,
            card,
            said,
        )
        codes = {code.detector for code in error_codes(*records, audit=audited)}
        assert ("execute.no_model_call" in codes) == given, (track, provider, opened, codes)
