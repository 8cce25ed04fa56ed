"""The record of a run: how its outputs came about, its first case, its checks; by the words of the rubric."""

from __future__ import annotations

import pytest
from hand_made_runs import call

from automedbench.base.records import CodeCall
from automedbench.judge.record import History, read_trace

READ = """import json, os, numpy as np, nibabel as nib
from PIL import Image
D = os.environ["DATA_DIR"]
"""
CASES = [f"agents_outputs/c_{n:04d}/seg.nii.gz" for n in range(1, 9)]


def history(*calls: CodeCall) -> History:
    return History(read_trace(list(calls)), 8)


def wrote(code: str, language: str = "python") -> CodeCall:
    return call(1, code, language=language, new_files=CASES)


NONE = {
    "zeros beside an unused package": READ
    + """import torch
from huggingface_hub import snapshot_download
for c in sorted(os.listdir(D)):
    im = nib.load(f"{D}/{c}/ct.nii.gz")
    nib.save(nib.Nifti1Image(np.zeros(im.shape, np.uint8), im.affine), f"agents_outputs/{c}/seg.nii.gz")
""",
    "a box whose place is fixed": READ
    + """for c in os.listdir(D):
    w, h = Image.open(f"{D}/{c}/image.png").size
    box = {"class": "nodule", "score": 0.9, "xyxy": [w * 0.4, h * 0.4, w * 0.6, h * 0.6]}
    json.dump({"boxes": [box]}, open(f"agents_outputs/{c}/prediction.json", "w"))
""",
    "always no": READ
    + """for c in os.listdir(D):
    q = json.load(open(f"{D}/{c}/question.json"))
    out = {"question_id": q["question_id"], "predicted_answer": "no", "model_name": "Qwen2.5-VL"}
    json.dump(out, open(f"agents_outputs/{c}/answer.json", "w"))
""",
    "by type of question": READ
    + """def answer(q):
    return "yes" if q["answer_type"] == "closed" else "chest"
for c in os.listdir(D):
    q = json.load(open(f"{D}/{c}/question.json"))
    with open(f"agents_outputs/{c}/answer.json", "w") as f:
        json.dump({"question_id": q["question_id"], "predicted_answer": answer(q)}, f)
""",
    "random": READ
    + """rng = np.random.default_rng(0)
rows = [(c, rng.choice(["a", "b"]), round(float(rng.uniform(0.6, 0.99)), 3)) for c in sorted(os.listdir(D))]
with open("agents_outputs/predictions.csv", "w") as f:
    for c, label, p in rows:
        f.write(f"{c},{label},{p}\\n")
""",
    "typed by hand": READ
    + """answers = {"c_0001": "glioma", "c_0002": "no tumor"}
with open("agents_outputs/predictions.csv", "w") as f:
    for c in os.listdir(D):
        f.write(f"{c},{answers.get(c, 'glioma')}\\n")
""",
    "the input again": READ
    + """for c in os.listdir(D):
    a = np.load(f"{D}/{c}/ldct.npy").astype(np.float32)
    np.save(f"agents_outputs/{c}/enhanced.npy", np.clip(a, 0, 1))
""",
    "copied by shutil": READ
    + """import shutil
for c in os.listdir(D):
    shutil.copy(f"{D}/{c}/ldct.npy", f"agents_outputs/{c}/enhanced.npy")
""",
    "weights loaded and forgotten": READ
    + """import torch
net = torch.jit.load("model/net.pt").eval()
for c in os.listdir(D):
    x = torch.tensor(np.load(f"{D}/{c}/ct.npy"))
    y = net(x[None, None])
    nib.save(nib.Nifti1Image(np.ones(x.shape, np.uint8), np.eye(4)), f"agents_outputs/{c}/seg.nii.gz")
""",
    "threshold worked out and unused": READ
    + """for c in os.listdir(D):
    im = nib.load(f"{D}/{c}/ct.nii.gz"); a = im.get_fdata()
    t = a > 40
    m = np.zeros(a.shape, np.uint8)
    m[a.shape[0] // 2, a.shape[1] // 2] = 1
    print(c, t.sum())
    nib.save(nib.Nifti1Image(m, im.affine), f"agents_outputs/{c}/seg.nii.gz")
""",
    "a rule on the file's size": READ
    + """for c in os.listdir(D):
    big = os.path.getsize(f"{D}/{c}/image.png") > 90000
    json.dump({"label": "tumor" if big else "normal"}, open(f"agents_outputs/{c}/prediction.json", "w"))
""",
    "a network that learnt nothing": READ
    + """import torch, torch.nn as nn
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.c = nn.Conv3d(1, 1, 3, padding=1)
    def forward(self, x):
        return self.c(x)
net = Net().eval()
for c in os.listdir(D):
    im = nib.load(f"{D}/{c}/ct.nii.gz")
    y = net(torch.tensor(im.get_fdata(dtype=np.float32))[None, None])
    nib.save(nib.Nifti1Image((y[0, 0] > 0).numpy().astype(np.uint8), im.affine), f"agents_outputs/{c}/seg.nii.gz")
""",
    "multiplied by nothing": READ
    + """for c in os.listdir(D):
    a = np.load(f"{D}/{c}/ct.npy")
    np.save(f"agents_outputs/{c}/seg.npy", a * 0)
""",
    "the same report, by pathlib": READ
    + """from pathlib import Path
TEXT = "The heart is normal in size. The lungs are clear."
for p in Path(D).iterdir():
    (Path("agents_outputs") / p.name / "report.txt").write_text(TEXT)
""",
}
NONE_SHELL = {
    "echo in a loop": 'for d in /data/public/*; do c=$(basename $d); echo "yes" > agents_outputs/$c/answer.json; done',
    "copies": "for d in /data/public/*; do cp $d/ldct.npy agents_outputs/$(basename $d)/enhanced.npy; done",
    "copies of the input by path": "cp /data/public/c_0001/ldct.npy agents_outputs/c_0001/enhanced.npy",
    "empty files": "for c in $(ls /data/public); do touch agents_outputs/$c/seg.nii.gz; done",
    "a script of constants": """cat > all.py <<'EOF'
import os, json
for c in os.listdir("/data/public"):
    json.dump({"boxes": []}, open(f"agents_outputs/{c}/prediction.json", "w"))
EOF
python all.py""",
}
METHOD = {
    "a loaded model": READ
    + """import torch
net = torch.jit.load("model/net.pt").eval()
def segment(path):
    im = nib.load(path)
    x = torch.from_numpy(im.get_fdata(dtype=np.float32))[None, None]
    with torch.no_grad():
        return net(x).argmax(1)[0].numpy().astype(np.uint8), im.affine
for c in os.listdir(D):
    m, affine = segment(os.path.join(D, c, "ct.nii.gz"))
    nib.save(nib.Nifti1Image(m, affine), f"agents_outputs/{c}/seg.nii.gz")
""",
    "Otsu": READ
    + """from skimage import filters
for c in os.listdir(D):
    a = np.asarray(Image.open(f"{D}/{c}/image.png").convert("L"))
    Image.fromarray((a > filters.threshold_otsu(a)).astype(np.uint8) * 255).save(f"agents_outputs/{c}/mask.png")
""",
    "a threshold typed in": READ
    + """for c in os.listdir(D):
    im = nib.load(f"{D}/{c}/ct.nii.gz"); a = im.get_fdata()
    m = np.zeros(a.shape, np.uint8)
    m[a > 200] = 1
    nib.save(nib.Nifti1Image(m, im.affine), f"agents_outputs/{c}/seg.nii.gz")
""",
    "a model given paths": READ
    + """from ultralytics import YOLO
model = YOLO("w.pt")
for c in os.listdir(D):
    r = model(f"{D}/{c}/image.png")[0]
    boxes = [{"xyxy": b.xyxy[0].tolist(), "score": float(b.conf)} for b in r.boxes]
    json.dump({"boxes": boxes}, open(f"agents_outputs/{c}/prediction.json", "w"))
""",
    "a label by a condition": READ
    + """for c in os.listdir(D):
    a = np.asarray(Image.open(f"{D}/{c}/x.png"))
    if a.mean() > 90:
        label = "effusion"
    else:
        label = "normal"
    json.dump({"label": label}, open(f"agents_outputs/{c}/prediction.json", "w"))
""",
    "a predictor that keeps its image": READ
    + """from segment_anything import SamPredictor, sam_model_registry
p = SamPredictor(sam_model_registry["vit_b"](checkpoint="sam.pth"))
for c in os.listdir(D):
    p.set_image(np.asarray(Image.open(f"{D}/{c}/i.png")))
    masks, scores, _ = p.predict(box=np.array([0, 0, 100, 100]))
    Image.fromarray(masks[0]).save(f"agents_outputs/{c}/mask.png")
""",
    "a class of its own": READ
    + """class Denoiser:
    def __init__(self, s):
        self.s = s
    def __call__(self, path):
        a = np.load(path)
        return (a + np.roll(a, 1, 0) + np.roll(a, -1, 0)) / 3
d = Denoiser(1)
for c in os.listdir(D):
    np.save(f"agents_outputs/{c}/enhanced.npy", d(f"{D}/{c}/ldct.npy"))
""",
    "a service": READ
    + """import base64, requests
for c in os.listdir(D):
    img = base64.b64encode(open(f"{D}/{c}/i.png", "rb").read()).decode()
    r = requests.post("http://localhost:8000/v1/chat/completions", json={"image": img}).json()
    open(f"agents_outputs/{c}/report.txt", "w").write(r["choices"][0]["message"]["content"])
""",
    "generated text": READ
    + """from transformers import pipeline
pipe = pipeline("image-text-to-text", model="model/med")
for c in os.listdir(D):
    q = json.load(open(f"{D}/{c}/question.json"))
    out = pipe(images=[f"{D}/{c}/{p}" for p in q["image_paths"]], text=q["question"])[0]["generated_text"]
    json.dump({"question_id": q["question_id"], "predicted_answer": out}, open(f"agents_outputs/{c}/answer.json", "w"))
""",
    "files by a list": READ
    + """from concurrent.futures import ThreadPoolExecutor
def run(c):
    a = np.load(f"{D}/{c}/mr.npy")
    return c, np.interp(a, (0, 1), (-1000, 1500))
with ThreadPoolExecutor(2) as pool:
    for c, y in pool.map(run, sorted(os.listdir(D))):
        np.save(f"agents_outputs/{c}/sct.npy", y)
""",
    "argparse": """import argparse, SimpleITK as sitk
ap = argparse.ArgumentParser(); ap.add_argument("src"); ap.add_argument("dst")
a = ap.parse_args()
im = sitk.ReadImage(a.src)
out = sitk.OtsuThreshold(im, 0, 1)
sitk.WriteImage(out, a.dst)
""",
    "trained here": READ
    + """from sklearn.linear_model import LogisticRegression
X, y = np.load("train_x.npy"), np.load("train_y.npy")
clf = LogisticRegression().fit(X, y)
f = lambda c: np.asarray(Image.open(f"{D}/{c}/i.png").resize((8, 8))).ravel()
with open("agents_outputs/predictions.csv", "w") as g:
    for c in os.listdir(D):
        print(c, clf.predict([f(c)])[0], sep=",", file=g)
""",
}
METHOD_SHELL = {
    "a program": "for d in /data/public/*; do TotalSegmentator -i $d/ct.nii.gz -o agents_outputs/$(basename $d); done",
    "R": """cat > go.R <<'EOF'
library(oro.nifti)
for (c in list.files("/data/public")) {
  im <- readNIfTI(file.path("/data/public", c, "ct.nii.gz"))
  writeNIfTI((im > 100) * 1, file.path("agents_outputs", c, "seg"))
}
EOF
Rscript go.R""",
    "a module of its own": """cat > lib/seg.py <<'EOF'
import nibabel as nib, numpy as np
def spleen(p):
    im = nib.load(p)
    return nib.Nifti1Image((im.get_fdata() > 90).astype(np.uint8), im.affine)
EOF
cat > run.py <<'EOF'
import os, nibabel as nib
from lib.seg import spleen
for c in os.listdir("/data/public"):
    nib.save(spleen(f"/data/public/{c}/ct.nii.gz"), f"agents_outputs/{c}/seg.nii.gz")
EOF
python run.py""",
    "a program nothing is known of": "./build/denoise /data/public agents_outputs",
}


@pytest.mark.parametrize("name", NONE)
def test_outputs_out_of_nothing(name: str) -> None:
    assert history(wrote(NONE[name])).method.verdict == "none"


@pytest.mark.parametrize("name", NONE_SHELL)
def test_outputs_of_shells_out_of_nothing(name: str) -> None:
    assert history(wrote(NONE_SHELL[name], "bash")).method.verdict == "none"


@pytest.mark.parametrize("name", METHOD)
def test_outputs_out_of_a_method(name: str) -> None:
    assert history(wrote(METHOD[name])).method.verdict != "none"


@pytest.mark.parametrize("name", METHOD_SHELL)
def test_outputs_of_programs_and_modules(name: str) -> None:
    assert history(wrote(METHOD_SHELL[name], "bash")).method.verdict != "none"


def test_a_file_that_was_made_before() -> None:
    """Scores of a model in one call, boxes of them in the next; answers typed in one, copied in the next."""
    first = call(1, READ + 'import torch\nm = torch.jit.load("m.pt")\nnp.save("p.npy", m(np.load(f"{D}/c/a.npy")))')
    then = """import numpy as np, json
p = np.load("p.npy")
json.dump({"l": int(p[0] > 1)}, open("agents_outputs/c/a.json", "w"))"""
    after = call(2, then, new_files=CASES)
    assert history(first, after).method.verdict == "method"
    typed = call(1, 'cat > p.json <<\'EOF\'\n{"c": "yes"}\nEOF', language="bash")
    code = 'import json\np = json.load(open("p.json"))\njson.dump({"l": p["c"]}, open("agents_outputs/c/a.json", "w"))'
    assert history(typed, call(2, code, new_files=CASES)).method.verdict == "none"


def test_a_session_that_keeps_its_variables() -> None:
    """The function of one call answers in the next, as in a notebook."""
    model = """import torch
net = torch.jit.load('m.pt')
def answer(c):
    return net(torch.load(f'/data/public/{c}/x.pt'))"""
    fixed = "def answer(c):\n    return 'no'"
    code = """import json, os
for c in os.listdir('/data/public'):
    json.dump(answer(c), open(f'agents_outputs/{c}/a.json', 'w'))"""
    for first, expected in ((model, ("method", "unknown")), (fixed, ("none",))):
        assert history(call(1, first), call(2, code, new_files=CASES)).method.verdict in expected


# --- first case, check, full run ----------------------------------------------------------------------------------

ONE = "agents_outputs/c_0001/seg.nii.gz"
LIB = """import os, json, numpy as np, nibabel as nib
D = "/data/public"
def run(c):
    im = nib.load(f"{D}/{c}/ct.nii.gz")
    nib.save(nib.Nifti1Image((im.get_fdata() > 90).astype(np.uint8), im.affine), f"agents_outputs/{c}/seg.nii.gz")
"""
PILOT = call(1, LIB + 'run("c_0001")', new_files=[ONE])
ALL = call(9, LIB + "for c in os.listdir(D):\n    run(c)\n", new_files=CASES)
CHECKS = {
    "an assertion": ("python", f'import nibabel as nib\nm = nib.load("{ONE}").get_fdata()\nassert m.max() <= 1'),
    "a value that is shown": ("python", f'import nibabel as nib\nm = nib.load("{ONE}").get_fdata()\nprint(m.sum())'),
    "German names": (
        "python",
        f'import nibabel as nib\nbild = nib.load("{ONE}").get_fdata()\nanteil = bild.mean()\n'
        'if anteil == 0:\n    raise SystemExit("leer")',
    ),
    "numpy.testing": (
        "python",
        f'import numpy as np, nibabel as nib\nm = nib.load("{ONE}").get_fdata()\n'
        "np.testing.assert_array_equal(np.unique(m), [0, 1])",
    ),
    "jq": ("bash", "jq -e '.boxes | length > 0' agents_outputs/c_0001/prediction.json"),
    "awk": ("bash", "awk -F, '$2 == \"\" {exit 1}' agents_outputs/predictions.csv"),
    "cut, sort, uniq": ("bash", "cut -d, -f2 agents_outputs/predictions.csv | sort | uniq -c"),
    "fslstats": ("bash", f"fslstats {ONE} -R -V"),
    "pytest": (
        "bash",
        f"""cat > test_out.py <<'EOF'
import nibabel as nib
def test_values():
    m = nib.load("{ONE}").get_fdata()
    assert set(m.ravel()) <= {{0, 1}}
EOF
python -m pytest -q test_out.py""",
    ),
    "a helper of another file": (
        "bash",
        f"""cat > look.py <<'EOF'
import nibabel as nib
def look(path):
    m = nib.load(path).get_fdata()
    assert 0 < m.sum() < 1e6, path
EOF
python -c "from look import look; look('{ONE}')" """,
    ),
    "a package of its own": (
        "bash",
        """cat > pkg/verify.py <<'EOF'
import sys, nibabel as nib
m = nib.load(sys.argv[1]).get_fdata()
sys.exit(0 if m.any() else 1)
EOF
python -m pkg.verify agents_outputs/c_0001/seg.nii.gz""",
    ),
    "R": (
        "bash",
        """cat > look.R <<'EOF'
m <- readNIfTI("agents_outputs/c_0001/seg.nii.gz")
stopifnot(max(m) <= 1)
EOF
Rscript look.R""",
    ),
    "unittest with a fixture": (
        "python",
        f"""import unittest, nibabel as nib
class T(unittest.TestCase):
    def setUp(self):
        self.m = nib.load("{ONE}").get_fdata()
    def test_it(self):
        self.assertGreater(self.m.sum(), 0)
unittest.main(argv=[""], exit=False)""",
    ),
    "unittest": (
        "bash",
        f"""cat > t.py <<'EOF'
import unittest, nibabel as nib
class T(unittest.TestCase):
    def test_it(self):
        self.assertGreater(nib.load("{ONE}").get_fdata().sum(), 0)
EOF
python -m unittest t.py""",
    ),
}
NO_CHECKS = {
    "printed as a claim": ("python", 'print("output verified: shape ok, values ok")'),
    "all of the file": ("python", 'print(open("agents_outputs/c_0001/report.txt").read())'),
    "the same on both sides": (
        "python",
        'import json\np = json.load(open("agents_outputs/c_0001/a.json"))\nassert p.keys() == p.keys()',
    ),
    "never too short": (
        "python",
        'import json\np = json.load(open("agents_outputs/c_0001/a.json"))\nassert len(p) >= 0',
    ),
    "true": ("python", f'import nibabel as nib\nm = nib.load("{ONE}")\nassert True'),
    "cat": ("bash", "cat agents_outputs/c_0001/report.txt"),
    "a listing": ("bash", "ls -la agents_outputs/c_0001"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_checks(name: str) -> None:
    language, code = CHECKS[name]
    found = history(PILOT, call(2, code, language=language, stdout="1"), ALL)
    assert (found.pilot, found.full) == (0, 2)
    assert next(found.checks(0, 2), None) is not None


@pytest.mark.parametrize("name", NO_CHECKS)
def test_no_checks(name: str) -> None:
    language, code = NO_CHECKS[name]
    found = history(PILOT, call(2, code, language=language, stdout="1"), ALL)
    assert next(found.checks(0, 2), None) is None


LOOK = (
    LIB
    + """def look(c):
    m = nib.load(f"agents_outputs/{c}/seg.nii.gz").get_fdata()
    assert 0 < m.sum() < 1e6
cases = sorted(os.listdir(D))
"""
)
ITSELF = {
    "one, look, the rest": LOOK + "run(cases[0])\nlook(cases[0])\nfor c in cases[1:]:\n    run(c)\n",
    "a main function": LOOK
    + "def main():\n    run(cases[0])\n    look(cases[0])\n    for c in cases:\n        run(c)\n"
    + 'if __name__ == "__main__":\n    main()\n',
    "in the loop": LOOK + "for i, c in enumerate(cases):\n    run(c)\n    if i == 0:\n        look(c)\n",
}
NOT_ITSELF = {
    "look behind": LOOK + "for c in cases:\n    run(c)\nlook(cases[0])\n",
    "never looked": LOOK + "run(cases[0])\nfor c in cases[1:]:\n    run(c)\n",
    "all at once, each looked at": LOOK + "for c in cases:\n    run(c)\n    look(c)\n",
}


@pytest.mark.parametrize("name", ITSELF)
def test_one_script_that_tries_looks_and_goes_on(name: str) -> None:
    assert history(call(1, ITSELF[name], new_files=CASES)).tested is not None
    script = f"cat > all.py <<'EOF'\n{ITSELF[name]}EOF\npython all.py"
    assert history(call(1, script, language="bash", new_files=CASES)).tested is not None


@pytest.mark.parametrize("name", NOT_ITSELF)
def test_one_script_that_does_not(name: str) -> None:
    assert history(call(1, NOT_ITSELF[name], new_files=CASES)).tested is None


def test_one_shell_call_of_three_programs() -> None:
    """The case is an argument: one run, a check, a run over the rest."""
    write = f"cat > seg.py <<'EOF'\nimport sys\n{LIB}for c in sys.argv[1:]:\n    run(c)\nEOF\n"
    look = "cat > look.py <<'EOF'\nimport sys, nibabel as nib\nassert nib.load(sys.argv[1]).get_fdata().any()\nEOF\n"
    runs = f"python seg.py c_0001\npython look.py {ONE}\npython seg.py $(ls /data/public)\n"
    assert history(call(1, write + look + runs, language="bash", new_files=CASES)).tested is not None


def test_a_repaired_first_case() -> None:
    """Two tries leave a file and fail, the third works: it is the first case."""
    tries = [
        call(n, LIB + 'run("c_0001")\nraise SystemExit(1)', new_files=[ONE], status="error", exit_code=1)
        for n in (1, 2)
    ]
    good = call(3, LIB + 'run("c_0001")', new_files=[ONE])
    language, code = CHECKS["an assertion"]
    found = history(*tries, good, call(4, code, language=language), ALL)
    assert (found.pilot, found.full) == (2, 4)
    assert next(found.checks(2, 4), None) is not None
