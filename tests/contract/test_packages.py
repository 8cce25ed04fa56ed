"""Packages in the container of agents: every usual way to install one works, and what the image holds is what it says.

Installed is from wheels and folders that the test makes, without network; the ways are those of hints and papers.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from unprivileged import IMAGES, as_user, user_folder, why_not

from automedbench.base.cards import Limits
from automedbench.sandbox.boxes import ApptainerSandbox
from automedbench.sandbox.container.image import ImageRecord, record_beside

# Each prints its own name and 'ok' as its last line; a later way finds the workspace as the earlier one left it.
WAYS = {
    "newer setuptools": "pip install -q --user 'setuptools>=77.0.3'; "
    "python3 -c 'import setuptools as s; assert s.__version__ == \"99.0\", s.__version__'",
    "older numpy": "python3 -m pip install -q --user 'numpy<2'; "
    "python3 -c 'import numpy as n; assert n.__version__ == \"1.26.4\", n.__version__'",
    "without --user": "python3 -m pip install -q tool-of-test; python3 -c 'import tool_of_test'",
    "program": "command -v tool-of-test | grep -qx /workspace/.local/bin/tool-of-test; tool-of-test",
    "in a login shell": "bash -lc 'tool-of-test; python3 -c \"import PIL, tool_of_test\"'; bash -l -c 'command -v pip'",
    "editable": "pip install -q --no-build-isolation --no-deps -e own; cd /; "
    "python3 -c 'import mine; assert mine.X == 1'; "
    "echo 'X = 2' >/workspace/own/mine.py; python3 -c 'import mine; assert mine.X == 2'",
    "own environment": "python3 -m venv v; v/bin/python -m pip install -q tool-of-test; v/bin/tool-of-test; "
    "! v/bin/python -c 'import PIL' 2>/dev/null",
    "own environment over the image's": "python3 -m venv --system-site-packages w; "
    "w/bin/python -c 'import PIL, sys; assert sys.prefix == \"/workspace/w\"'",
}
VERSIONS = {"setuptools": "99.0", "numpy": "1.26.4", "tool_of_test": "1.0"}


def make_wheel(folder: Path, name: str, version: str) -> None:
    """A wheel with one module and one program of the package's name (PEP 427)."""
    info = f"{name}-{version}.dist-info"
    content = {
        f"{name}/__init__.py": f'__version__ = "{version}"\n\n\ndef main():\n    print("here")\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name.replace('_', '-')} = {name}:main\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)


def run_ways(folder: Path, image: Path, ways: dict[str, str], *, timeout_s: float = 240) -> dict[str, str]:
    """Run programs in one container; way → what it printed, for those that did not end well."""
    for name in ("workspace", "log", "public"):
        (folder / name).mkdir()
    wheels = folder / "workspace/wheels"
    wheels.mkdir()
    for name, version in VERSIONS.items():
        make_wheel(wheels, name, version)
    (folder / "workspace/own").mkdir()
    (folder / "workspace/own/mine.py").write_text("X = 1\n")
    (folder / "workspace/own/setup.py").write_text(
        "from setuptools import setup\nsetup(name='mine', version='1', py_modules=['mine'])\n"
    )
    places: dict[str, Any] = {"public": folder / "public", "workspace": folder / "workspace"}
    setting = "set -e\nexport PIP_NO_INDEX=1 PIP_FIND_LINKS=/workspace/wheels PIP_DISABLE_PIP_VERSION_CHECK=1\n"
    failed = {}
    with ApptainerSandbox(**places, image=image, limits=Limits(disk_gb=4.0)) as box:
        for number, (name, code) in enumerate(ways.items(), start=1):
            done = box.run_code(
                "bash", setting + code, call=number, turn=number, log=folder / "log", timeout_s=timeout_s
            )
            if done.status != "ok":
                failed[name] = f"{done.status}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
    return failed


@pytest.mark.apptainer
def test_every_way_to_install_a_package_works() -> None:
    if reason := why_not("light"):
        pytest.skip(reason)
    # Own setuptools of the test would not build anything: the way 'editable' comes before it is replaced.
    order = dict(sorted(WAYS.items(), key=lambda way: way[0] != "editable"))
    with user_folder() as folder:
        failed = as_user(lambda: run_ways(folder, IMAGES / "light.sif", order))
    assert failed == {}


@pytest.mark.apptainer
def test_the_record_beside_is_the_one_inside_and_true() -> None:
    """Python's own view inside, against the record that the brief is made from."""
    if reason := why_not("light"):
        pytest.skip(reason)
    record = record_beside(IMAGES / "light.sif")
    assert record is not None
    absent = {"absent": "! command -v curl && ! command -v git"}  # of the record's list, and not in light
    assert not {"curl", "git"} & set(record.tools)
    with user_folder() as folder:
        assert as_user(lambda: run_ways(folder, IMAGES / "light.sif", looks(record) | absent)) == {}


def looks(record: ImageRecord) -> dict[str, str]:
    """Programs that find inside what the record tells."""
    return {
        "same": f"python3 - <<'E'\nimport json\nassert json.load(open('/opt/automedbench/image.json')) == "
        f"json.loads({record.model_dump_json()!r})\nE",
        "packages": "python3 - <<'E'\nfrom importlib.metadata import version\n"
        f"for name, expected in {record.packages!r}.items():\n    assert version(name) == expected, name\nE",
        "tools": "\n".join(f"command -v {tool}" for tool in record.tools),
    }


# One program for each package of envs/research.in, on the CPU and without network: random weights, tiny inputs.
NNUNET = """
import json, numpy as np, torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.utilities.get_network_from_plans import get_network_from_plans
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager
kwargs = {"n_stages": 2, "features_per_stage": [4, 8], "conv_op": "torch.nn.modules.conv.Conv3d",
    "kernel_sizes": [[3, 3, 3]] * 2, "strides": [[1, 1, 1], [2, 2, 2]], "n_conv_per_stage": [1, 1],
    "n_conv_per_stage_decoder": [1], "conv_bias": True, "norm_op": "torch.nn.modules.instancenorm.InstanceNorm3d",
    "norm_op_kwargs": {"eps": 1e-5, "affine": True}, "dropout_op": None, "dropout_op_kwargs": None,
    "nonlin": "torch.nn.LeakyReLU", "nonlin_kwargs": {"inplace": True}}
three = {"data_identifier": "x", "preprocessor_name": "DefaultPreprocessor", "batch_size": 1,
    "patch_size": [16, 16, 16], "spacing": [1.0, 1.0, 1.0], "normalization_schemes": ["ZScoreNormalization"],
    "use_mask_for_norm": [False], "batch_dice": False, "resampling_fn_data": "resample_data_or_seg_to_shape",
    "resampling_fn_seg": "resample_data_or_seg_to_shape",
    "resampling_fn_probabilities": "resample_data_or_seg_to_shape",
    "resampling_fn_data_kwargs": {"is_seg": False, "order": 3, "order_z": 0, "force_separate_z": None},
    "resampling_fn_seg_kwargs": {"is_seg": True, "order": 1, "order_z": 0, "force_separate_z": None},
    "resampling_fn_probabilities_kwargs": {"is_seg": False, "order": 1, "order_z": 0, "force_separate_z": None},
    "architecture": {"network_class_name": "dynamic_network_architectures.architectures.unet.PlainConvUNet",
        "arch_kwargs": kwargs, "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"]}}
plans = PlansManager({"dataset_name": "x", "plans_name": "p", "image_reader_writer": "SimpleITKIO",
    "transpose_forward": [0, 1, 2], "transpose_backward": [0, 1, 2], "configurations": {"3d_fullres": three},
    "experiment_planner_used": "x", "label_manager": "LabelManager",
    "foreground_intensity_properties_per_channel": {"0": {"mean": 0.0, "std": 1.0}}})
dataset = {"channel_names": {"0": "CT"}, "labels": {"background": 0, "organ": 1}, "numTraining": 1,
    "file_ending": ".nii.gz"}
chosen = plans.get_configuration("3d_fullres")
net = get_network_from_plans(chosen.network_arch_class_name, chosen.network_arch_init_kwargs,
    chosen.network_arch_init_kwargs_req_import, 1, 2, deep_supervision=False)
predictor = nnUNetPredictor(device=torch.device("cpu"), perform_everything_on_device=False, allow_tqdm=False)
predictor.manual_initialization(net, plans, chosen, [net.state_dict()], dataset, "nnUNetTrainer", (0,))
volume = np.random.default_rng(1).normal(size=(1, 20, 18, 22)).astype("float32")
mask = predictor.predict_single_npy_array(volume, {"spacing": [1.0, 1.0, 1.0]})
assert mask.shape == (20, 18, 22) and set(np.unique(mask)) <= {0, 1}
"""
SMOKE = {
    "nnunetv2, torch": NNUNET,
    "ultralytics, opencv": "import numpy as np\nfrom ultralytics import YOLO\nm = YOLO('yolov8n.yaml')\n"
    "found = m.predict(np.zeros((64, 64, 3), 'uint8'), imgsz=64, device='cpu', verbose=False)\n"
    "assert found[0].orig_shape == (64, 64)",
    "transformers": "import torch\nfrom transformers import GPT2Config, GPT2LMHeadModel\n"
    "m = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=16)).eval()\n"
    "out = m.generate(torch.tensor([[1, 2]]), max_new_tokens=4, do_sample=False, pad_token_id=0)\n"
    "assert out.shape[1] <= 6",
    "monai": "import torch\nfrom monai.inferers import sliding_window_inference\nfrom monai.networks.nets import UNet\n"
    "net = UNet(3, 1, 2, (4, 8), (2,)).eval()\n"
    "out = sliding_window_inference(torch.zeros(1, 1, 20, 20, 20), (16, 16, 16), 1, net)\n"
    "assert out.shape == (1, 2, 20, 20, 20)",
    "totalsegmentator": "from totalsegmentator.map_to_binary import class_map\nimport totalsegmentator.python_api\n"
    "assert 'liver' in class_map['total'].values()",
    "timm, torchvision, einops": "import timm, torch, torchvision\nfrom einops import rearrange\n"
    "x = rearrange(torch.zeros(32, 32, 3), 'h w c -> 1 c h w')\n"
    "assert timm.create_model('resnet18', num_classes=3).eval()(x).shape == (1, 3)\n"
    "assert torchvision.models.resnet18(num_classes=2).eval()(x).shape == (1, 2)\n"
    "torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)",
    "deepinv, accelerate": "import accelerate, deepinv, torch\n"
    "net = deepinv.models.DnCNN(1, 1, depth=3, nf=4, pretrained=None).eval()\n"
    "assert net(torch.zeros(1, 1, 8, 8), 0.1).shape == (1, 1, 8, 8)\naccelerate.Accelerator(cpu=True)",
    "files": "import io, cv2, nibabel, numpy as np, pandas, pydicom, SimpleITK as s\n"
    "import sklearn.linear_model, skimage.filters\n"
    "a = np.arange(8.0).reshape(2, 2, 2)\nnibabel.save(nibabel.Nifti1Image(a, np.eye(4)), 'a.nii.gz')\n"
    "assert s.GetArrayFromImage(s.ReadImage('a.nii.gz')).sum() == 28\n"
    "assert cv2.imdecode(cv2.imencode('.png', np.zeros((4, 4), 'uint8'))[1], 0).shape == (4, 4)\n"
    "assert pandas.read_csv(io.StringIO('a\\n1')).a[0] == 1\nskimage.filters.gaussian(a)\n"
    "from skimage.restoration import estimate_sigma; assert estimate_sigma(a[0]) >= 0  # by pywavelets\n"
    "sklearn.linear_model.LogisticRegression().fit([[0], [1]], [0, 1])\n"
    "import matplotlib; matplotlib.use('Agg'); import matplotlib.pyplot as p; p.plot([1]); p.savefig('a.png')\n"
    "import huggingface_hub, requests, tqdm; from PIL import Image; assert Image.open('a.png').size",
}
PROGRAMS = (
    "echo 'int main(){return 0;}' >a.c && gcc a.c -o a && ./a && cd /tmp && git init -q x && git lfs version && "
    "curl --version && wget --version && ffmpeg -loglevel error -f lavfi -i testsrc=d=0.1 -f null - && "
    "zip -q a.zip /etc/hostname && "
    "7z l a.zip && xz --version && pip check"
)


@pytest.mark.long
@pytest.mark.apptainer
@pytest.mark.timeout(3600)
def test_every_package_of_research_works_offline_on_the_cpu() -> None:
    if reason := why_not("research"):
        pytest.skip(reason)
    record = record_beside(IMAGES / "research.sif")
    assert record is not None and record.cuda
    ways = {name: f"python3 - <<'PROGRAM'\n{code}\nPROGRAM" for name, code in SMOKE.items()}
    ways |= looks(record) | {"programs": PROGRAMS}
    with user_folder() as folder:
        assert as_user(lambda: run_ways(folder, IMAGES / "research.sif", ways, timeout_s=900)) == {}
