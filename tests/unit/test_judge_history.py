"""Order of a run's calls: first case, check, full run, in one call or in several (definitions of the rubric, S3)."""

from __future__ import annotations

import pytest
from hand_made_runs import call

from automedbench.base.records import CodeCall
from automedbench.judge.record import History, read_trace

CASES = [f"agents_outputs/c_{number:04d}/seg.nii.gz" for number in range(1, 9)]


def history(*calls: CodeCall) -> History:
    """The record of these calls."""
    return History(read_trace(list(calls)), len(CASES))


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
