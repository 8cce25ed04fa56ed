"""A campaign of these kinds through the real workflow.

Every agent plans, tries one case, checks it, runs all, checks and submits; what differs between them is the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from automedbench.base.files import read_record
from automedbench.base.records import DetailReport, Effect, ScoreRecord
from effects.data import WORDNET, Toy, make_toys
from effects.kinds import FOLDER, Kind

LOOK = """\
import os
from pathlib import Path

import nibabel
import numpy as np
from PIL import Image

OPEN = {".npy": np.load, ".gz": lambda path: nibabel.load(path).get_fdata()}
data = Path(os.environ["DATA_DIR"])
print(len(os.listdir(data)), "cases")
for folder in sorted(data.iterdir())[:3]:
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if file.suffix == ".json":
            print(file.name, file.read_text()[:300])
            continue
        values = np.asarray(OPEN.get(file.suffix, Image.open)(file))
        print(folder.name, file.name, values.shape, values.dtype, "range", values.min(), values.max(), values.mean())
"""
PLAN = """\
mkdir -p plan
cat > plan/plan.md <<'END'
# Plan

## Candidates

| candidate | for | against |
|---|---|---|
{plan}

## Pipeline

1. Preprocessing: load the input of a case and bring its values to one scale.
2. Model: the chosen method, run on that input.
3. Inference: predict one case first, then every case, one by one.
4. Export: write {output} below agents_outputs.

## Validation

Run one case, read its output back and check form and values against the task. Then all cases, the same checks, submit.
END
wc plan/plan.md
"""
DRAWING = """\
from PIL import Image, ImageDraw

figure = Image.new("RGB", (320, 330), "white")
draw = ImageDraw.Draw(figure)
for number, step in enumerate(["read the input", "prepare", "method", "{output}", "check, all, submit"]):
    draw.rectangle((20, 10 + 62 * number, 300, 50 + 62 * number), outline="black", fill=(225, 235, 245))
    draw.text((40, 22 + 62 * number), step, fill="black")
    if number:
        draw.line((160, 62 * number - 12, 160, 62 * number + 10), fill="black", width=2)
figure.save("plan/plan.png")
print(figure.size)
"""
ENVIRONMENT = """\
import numpy, PIL, scipy, scipy.ndimage

for package in (numpy, PIL, scipy):
    print(package.__name__, package.__version__)
"""
CHECK = """\
import json
import os
from pathlib import Path

import numpy as np

written = sorted(path.name for path in Path("agents_outputs").iterdir() if path.is_dir())
{check}
"""


def transcript(kind: Kind) -> list[dict[str, Any]]:
    """Turns of the scripted agent that hands in this program's outputs."""
    table = yaml.safe_load((FOLDER / f"{kind.task}.yaml").read_text(encoding="utf-8"))
    plan, drawing, check = (text.format(**table) for text in (PLAN, DRAWING, CHECK))
    runner = "python3 solve.py" if kind.language == "python" else "bash solve.sh"
    return [
        _turn("First I look at the data.", ("python", LOOK)),
        _turn("I write down what I am going to do, and draw it.", ("bash", plan), ("python", drawing)),
        _turn("I check that the packages are there.", ("python", ENVIRONMENT)),
        _turn("Now the program.", ("bash", f"cat > {kind.file} <<'SOLVE'\n{kind.program}\nSOLVE\nwc -l {kind.file}")),
        _turn("One case first.", ("bash", f'ls "$DATA_DIR" | sort | sed -n 2p | xargs {runner}')),
        _turn("I read its output back and check it.", ("python", check)),
        _turn("It is what the task asks for. Now all cases.", ("bash", f'ls "$DATA_DIR" | sort | xargs {runner}')),
        _turn("The same checks for all.", ("python", check)),
        {"content": "All is valid. I submit.", "calls": [{"tool": "submit_results", "summary": "All cases done."}]},
    ]


def _turn(content: str, *calls: tuple[str, str]) -> dict[str, Any]:
    codes = [{"tool": "execute_code", "language": language, "code": code} for language, code in calls]
    return {"content": content, "calls": codes}


def write_campaign(folder: Path, kinds: Sequence[Kind]) -> Path:
    """Write raw data, cards, agents and configuration of the campaign below ``folder``; returns the configuration."""
    toys = {name: toy for name, toy in make_toys().items() if any(kind.task == name for kind in kinds)}
    for name in ("cards", "agents", *(f"raw/{name}" for name in toys)):
        (folder / name).mkdir(parents=True)
    for name, toy in toys.items():
        toy.make_raw(folder / "raw" / name)
        card = toy.CARD.model_dump(mode="json")
        card["dataset"]["sources"] = [{"kind": "path", "where": str(folder / "raw" / name)}]
        (folder / f"cards/{toy.CARD.id}.yaml").write_text(yaml.safe_dump(card))
    for kind in kinds:
        (folder / f"agents/{kind.id}.yaml").write_text(yaml.safe_dump(transcript(kind)))
    agents = {
        kind.id: {"provider": "scripted", "script": str(folder / f"agents/{kind.id}.yaml"), "trusted": True}
        for kind in kinds
    }
    (folder / "agents.yaml").write_text(yaml.safe_dump({"agents": agents}))
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_config(folder, toys, kinds)))
    return config


def _config(folder: Path, toys: dict[str, Toy], kinds: Sequence[Kind]) -> dict[str, Any]:
    runs = [{"agent": kind.id, "task": toys[kind.task].CARD.id, "tier": "standard", "repeat": 1} for kind in kinds]
    return {
        "agents_file": str(folder / "agents.yaml"),
        "cards": [str(folder / "cards")],
        "matrix": {
            "agents": [kind.id for kind in kinds],
            "tasks": [toy.CARD.id for toy in toys.values()],
            "tiers": ["standard"],
            "repeats": 1,
            "include": runs,
            "exclude": [{}],
        },
        "data": {name: str(folder / "data" / name) for name in ("raw", "public", "private", "manifests")},
        "results": str(folder / "results"),
        "datasets": {
            toy.CARD.dataset.name: {"path": str(folder / "raw" / name), "excerpt": True} for name, toy in toys.items()
        },
        "resources": {"wordnet": str(WORDNET)},
        "sandbox": {"backend": "local", "network": "open"},
        "judge": {"kind": "heuristic"},
    }


# --- what came of it ------------------------------------------------------------------------------------------

MOST_AGENTIC = 0.50
"""What an agent without a method may have of the agentic half: plan, set-up, and the form of its files."""


@dataclass(frozen=True)
class Verdict:
    """Effect and scores of one kind's run."""

    kind: Kind
    effect: Effect
    score: ScoreRecord

    @property
    def wrong(self) -> list[str]:
        """Everything that is not as it must be."""
        scores = self.score.scores
        problems = [] if self.effect.verdict in self.kind.expected else [f"effect {self.effect.verdict}"]
        if self.kind.group != "gamers" or self.effect.verdict != "none":
            return (
                problems  # what is unclear costs nothing: guesses in classification, VQA and reports, for the most part
            )
        problems += [f"agentic {scores.agentic}"] if scores.agentic > MOST_AGENTIC else []
        problems += [f"medal {self.score.medal}"] if self.score.medal != "fail" else []
        return problems + ([f"overall {scores.overall}"] if scores.overall > 0.35 and scores.task <= 0.2 else [])


def read_verdicts(folder: Path, kinds: Sequence[Kind]) -> list[Verdict]:
    """Effects and scores of the finished campaign, in order of the kinds."""
    toys, found = make_toys(), []
    for kind in kinds:
        run = folder / "results/runs" / kind.id / toys[kind.task].CARD.id / "standard/r1"
        detail = read_record(run / "detail_report.json", DetailReport)
        found.append(Verdict(kind, detail.effect, read_record(run / "score.json", ScoreRecord)))
    return found
