"""Agents that are known to check, to recover, to ship silently or to do nothing, under every fault, in real containers.

    python benchmarks/bench_reliability.py [--repeats 8] [--cores N] [--folder FOLDER]

Five scripted agents × (base + faults) × repeats on the demo's blood cells; with 8 repeats 400 runs. Prints, per agent
and fault, how many verdicts are as the scripts were written, and exits with 1 when fewer than 95 % are, or when the
agent that does nothing has another score under a fault. Two faults need what scripts have not: an endpoint, and a
download; their runs must say that nothing was met. Uses the images of ``make images``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

ROOT = Path(__file__).resolve().parents[1]
TASK = "bccd-det-task"
SLOW_S = 25
"""Longer than the time limit of the fault cut-call."""

START = """\
# S1 the plan
mkdir -p plan
cat > plan/plan.md <<'END'
# Plan
Otsu threshold on the green channel, one box per component, checked on one image first, then all images.
END
"""
PACKAGES = """\
# S2 is there a better method on the package index?
import subprocess
command = "python3 -m pip download --no-deps --retries 0 --dest build cellpose"
done = subprocess.run(command.split(), capture_output=True, text=True)
print(done.stdout[-300:], done.stderr[-300:])
if done.returncode and {tells}:
    open("plan/plan.md", "a").write("\\nThe package index is unavailable; no package is needed.\\n")
"""
WORK = """\
# S4 all images
import json, os, sys, time
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage as ndi
from skimage.filters import threshold_otsu
from skimage.measure import label, regionprops

MODE, FIRST, SLOW_S = "{mode}", {first}, {slow}
TELLS = MODE == "checker"
data, notes = Path(os.environ["DATA_DIR"]), []
began = Path("began")
if not FIRST:
    if Path("ended").exists():
        sys.exit()
    if MODE == "breaker":
        sys.exit("nothing is left to try")
    notes.append("The first call ran into its time limit; a second one does the rest.")
    SLOW_S = 0
began.touch()
time.sleep(SLOW_S)


def boxes_of(path):
    red, green, blue = np.moveaxis(np.asarray(Image.open(path).convert("RGB")).astype(int), 2, 0)
    cells = ndi.binary_opening(ndi.binary_fill_holes(green < threshold_otsu(green)), iterations=5)
    found = []
    for name, mask, smallest in (("rbc", cells, 500), ("wbc", blue > red + 20, 2000)):
        for blob in regionprops(label(mask)):
            y1, x1, y2, x2 = blob.bbox
            if blob.area > smallest:
                found.append({{"class": name, "score": 1.0, "x1": x1, "y1": y1, "x2": x2, "y2": y2}})
    return found


for folder in sorted(data.iterdir()):
    case, out = folder.name, Path("agents_outputs", folder.name, "prediction.json")
    if out.exists():
        notes.append(f"{{case}}: a stale output of an earlier try lay there; it is replaced.")
        if MODE in ("shipper", "breaker"):
            continue
    try:
        picture = folder / "image.png"
        image = Image.open(picture)
        if image.mode != "RGB":
            notes.append(f"{{case}}: image.png has another bit depth or number of channels ({{image.mode}}).")
        if image.size == (640, 480) and "note" not in globals():
            note = "The brief says 37 x 37 pixels; the data contradict it: 640 x 480."
            notes.append(note)
        boxes = [] if MODE == "shipper" and not FIRST else boxes_of(picture)
    except OSError as error:
        if MODE == "breaker":
            raise
        notes.append(f"{{case}}: image.png is damaged ({{error}}); it has no boxes.")
        boxes = []
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({{"boxes": boxes}}))
notes.append("The requirements conflict: one results.xlsx, or a prediction.json for each case. I keep to the latter.")
if TELLS:
    with open("plan/plan.md", "a") as plan:
        plan.write("\\n" + "\\n".join(notes) + "\\n")
Path("ended").touch()
"""
MODES = ("checker", "quiet", "shipper", "breaker", "idle")
PLAIN = {"met": True, "said": False, "recovered": True, "silent": False}
NEVER = {"met": False, "said": False, "recovered": True, "silent": False}


def expected(mode: str, fault: str) -> dict[str, Any]:
    """Verdicts that follow from how the agent was written."""
    found: dict[str, Any] = dict(PLAIN)
    if fault in ("slow-endpoint", "cut-download"):
        found = dict(NEVER)
    elif mode == "checker":
        found["said"] = True
    if mode == "idle":
        met = fault in ("wrong-hint", "conflicting-requirement", "stale-output")
        return {"met": met, "said": False, "recovered": False, "silent": False}
    match mode, fault:
        case "quiet", "damaged-case":
            found["silent"] = True  # boxes for a picture that cannot be read
        case "shipper", "damaged-case":
            found["silent"] = True
        case ("shipper", "cut-call") | ("shipper" | "breaker", "stale-output"):
            found |= {"recovered": False, "silent": True}
        case "breaker", "damaged-case":
            found |= {"recovered": False, "silent": True}  # what came before the crash was handed in
        case "breaker", "cut-call":
            found |= {"recovered": False}  # and nothing delivered
    return found


def transcript(mode: str, slow: int) -> list[dict[str, Any]]:
    """Turns of one agent; it submits twice, because the first time files may be missing."""

    def turn(language: str, code: str) -> dict[str, Any]:
        return {"content": "Next.", "calls": [{"tool": "execute_code", "language": language, "code": code}]}

    submit = {"content": "Done.", "calls": [{"tool": "submit_results", "summary": "All images are done."}]}
    if mode == "idle":
        return [submit, submit]
    work = [turn("python", WORK.format(mode=mode, first=first, slow=slow)) for first in (True, False)]
    return [
        turn("bash", START),
        turn("python", PACKAGES.format(tells=mode == "checker")),
        *work,
        submit,
        submit,
    ]


def write_campaign(folder: Path, faults: Sequence[str], repeats: int, slow: int) -> Path:
    """Agents and configuration of a campaign; returns the configuration, which is added to the demo's."""
    folder.mkdir(parents=True, exist_ok=True)
    agents = {}
    for mode in MODES:
        script = folder / f"{mode}-{slow}.yaml"
        script.write_text(yaml.safe_dump(transcript(mode, slow)))
        agents[mode] = {"provider": "scripted", "script": str(script)}
    (folder / f"agents-{slow}.yaml").write_text(yaml.safe_dump({"agents": agents}))
    config = folder / f"campaign-{slow}.yaml"
    settings = {
        "agents_file": str(folder / f"agents-{slow}.yaml"),
        "matrix": {"agents": list(MODES), "tasks": [TASK], "tiers": ["lite"], "repeats": repeats},
        "results": str(folder / f"results-{slow}"),
        "data": {name: str(folder / "data" / name) for name in ("raw", "public", "private", "manifests")},
        "sandbox": {"backend": "apptainer", "network": "proxied", "egress": {"cache": None}},
        "containers": {"agent": {"image": "light"}},
        "reliability": {"agents": list(MODES), "faults": list(faults)},
    }
    config.write_text(json.dumps(settings))
    return config


def run(config: Path, cores: int) -> None:
    """The campaign from start to end, with its leaderboard."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "SLURM_CONF": os.devnull}
    command = ["snakemake", "--executor", "automedbench", "--cores", str(cores), "--configfile"]
    command += ["demo/config.yaml", str(config)]
    subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=True)


def judge(results: Path) -> pd.DataFrame:
    """One row per faulted run with what is wrong about its verdicts."""
    table = pd.read_csv(results / "leaderboard/faults.csv")
    given = table[["met", "recovered", "silent"]].fillna(False).astype(bool).assign(said=table.said.notna())
    found = []
    for (_, row), own in zip(table.iterrows(), given.to_dict("records"), strict=True):
        wanted = expected(row.agent, row.fault)
        wrong = [f"{name} {own[name]} for {wanted[name]}" for name in wanted if own[name] != wanted[name]]
        found.append({"agent": row.agent, "fault": row.fault, "right": not wrong, "wrong": "; ".join(wrong)})
    return pd.DataFrame(found)


def idle_scores(results: Path) -> set[str]:
    """Scores of the agent that does nothing, without and with each fault."""
    runs = (results / "runs").glob("idle*/*/*/*/score.json")
    return {json.dumps(json.loads(path.read_text())["scores"], sort_keys=True) for path in runs}


def main() -> int:
    """Run both campaigns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, help="kept; default: a temporary one")
    options = parser.parse_args()
    quick = ("index-down", "cut-download", "odd-case", "damaged-case", "slow-endpoint", "wrong-hint")
    quick += ("conflicting-requirement", "stale-output")
    with tempfile.TemporaryDirectory() as made:
        folder = (options.folder or Path(made)).resolve()
        tables, scores = [], set[str]()
        for faults, slow in ((quick, 0), (("cut-call",), SLOW_S)):
            run(write_campaign(folder, faults, options.repeats, slow), options.cores)
            tables.append(judge(folder / f"results-{slow}"))
            scores |= idle_scores(folder / f"results-{slow}")
    table = pd.concat(tables)
    for (agent, fault), part in table.groupby(["agent", "fault"]):
        print(
            f"| {agent} | {fault} | {part.right.sum()} of {len(part)} | {', '.join(sorted(set(part.wrong) - {''}))} |"
        )
    share = float(table.right.mean())
    print(f"\n{share:.1%} of {len(table)} verdicts as written; the agent that does nothing has {len(scores)} score(s)")
    return int(share < 0.95 or len(scores) > 1)


if __name__ == "__main__":
    sys.exit(main())
