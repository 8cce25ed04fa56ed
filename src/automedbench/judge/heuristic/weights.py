"""Weights, obtained or not: a file of the right size that a program fetched, not one that code wrote by hand."""

from __future__ import annotations

import re

from automedbench.judge.trace import Event
from automedbench.reading.code import Spot, third_party

MIN_WEIGHT_BYTES = 1_000_000
WEIGHT_SUFFIXES = (
    *(".pth", ".pt", ".ckpt", ".safetensors", ".onnx", ".bin", ".h5", ".keras", ".zip", ".tar", ".tar.gz", ".tgz"),
    *(".model", ".pkl", ".npz", ".gguf", ".pb", ".tflite", ".params", ".pdparams", ".msgpack", ".caffemodel"),
)
_HUB_BLOB = re.compile(r"(?:^|/)models--[^/]+/(?:blobs|snapshots)/")
DOWNLOAD_CALLS = frozenset(
    "hf_hub_download snapshot_download from_pretrained urlretrieve urlopen download_url_to_file "  # noqa: SIM905
    "load_state_dict_from_url dataset_download model_download download requests.get YOLO".split()
)
DOWNLOAD_COMMANDS = frozenset(["wget", "curl", "gdown", "aria2c", "huggingface-cli", "hf", "git", "kaggle"])
WEIGHT_LOADS = frozenset(
    "torch.load torch.jit.load load_state_dict from_pretrained load_pretrained_model YOLO load_model load_file "  # noqa: SIM905
    "InferenceSession load_from_checkpoint init_detector initialize_from_trained_model_folder".split()
)
_MADE_COMMANDS = frozenset(["touch", "truncate", "dd", "fallocate", "head", "yes"])
_MADE_CALLS = frozenset(["save", "save_file", "save_model", "savez", "truncate", "urandom", "dump", "randbytes"])
_LOADING_ARGUMENT = re.compile(r"^(?:pretrained|weights|ckpt|checkpoint)=(?!None$|False$)")
# Reading and arithmetic: importing these fetches nothing.
_PLAIN = frozenset(
    "numpy scipy pandas PIL nibabel skimage cv2 matplotlib sklearn tqdm SimpleITK h5py pydicom imageio yaml".split()  # noqa: SIM905
)
_UNIX = frozenset(
    "cd ls cat cp mv rm mkdir rmdir touch head tail sort uniq grep egrep awk gawk sed cut tr wc find xargs tar unzip "  # noqa: SIM905
    "gzip gunzip zip chmod ln tee du df stat file identify nvidia-smi bash sh sleep time test [ dd truncate fallocate "
    "date ps kill which whoami uname free nproc basename dirname seq jq diff cmp md5sum sha256sum pip pip3 conda mamba "
    "uv apt apt-get virtualenv dot mmdc vi nano".split()
)
_GIVEN = re.compile(r"^/(?!workspace|tmp)[\w./-]+$")


def fetched_weights(event: Event, earlier: list[Event], files: dict[str, int]) -> str | None:
    """A weight file that this call, or one before it, fetched and that lies in the workspace at the end."""
    if not any(map(fetches, [*earlier, event])):
        return None
    return next((path for path in sorted(event.call.new_files) if _is_weights(path, event, files)), None)


def _is_weights(path: str, event: Event, files: dict[str, int]) -> bool:
    known = path.lower().endswith(WEIGHT_SUFFIXES) or bool(_HUB_BLOB.search(path))
    return known and files.get(path, 0) >= MIN_WEIGHT_BYTES and not _made_by_hand(path, event)


def fetches(event: Event) -> bool:
    """Code that ran can have fetched weights: a download, a model that brings its weights, a package's own program."""
    if not event.ok:
        return False
    facts = event.facts
    brings = any(third_party(spot.name) and spot.name.partition(".")[0] not in _PLAIN for spot in facts.imports)
    return brings or any(map(_downloads, facts.commands)) or any(spot.is_a(DOWNLOAD_CALLS) for spot in facts.calls)


def _downloads(spot: Spot) -> bool:
    """A command that downloads, or the program of an installed package; scripts and interpreters are read as code."""
    program = spot.name.partition(" ")[0].rpartition("/")[2]
    script = program.startswith("python") or program.endswith((".py", ".sh")) or "=" in program
    return program in DOWNLOAD_COMMANDS or not (program in _UNIX or script or not program)


def _made_by_hand(path: str, event: Event) -> bool:
    """The same call names the file and makes files of any content and size."""
    name = path.rpartition("/")[2]
    commands = [spot.name for spot in event.facts.commands if name in spot.name]
    if any(command.partition(" ")[0] in _MADE_COMMANDS for command in commands):
        return True
    named = any(name in spot.name for spot in event.facts.strings)
    return named and any(spot.is_a(_MADE_CALLS) for spot in event.facts.calls)


def loads(event: Event) -> Spot | None:
    """Where code loads weights: a loading call, or an argument that asks for pretrained ones."""
    calls = (spot for spot in event.facts.calls if spot.is_a(WEIGHT_LOADS))
    arguments = (spot for spot in event.facts.keywords if _LOADING_ARGUMENT.match(spot.name))
    return next(calls, None) or next(arguments, None)


def given_weights(event: Event) -> Spot | None:
    """Where code loads weights from a folder outside of the workspace, as a run that was given some does."""
    if not event.ok or loads(event) is None:
        return None
    paths = (spot for spot in event.facts.strings if _GIVEN.match(spot.name))
    return next((spot for spot in paths if spot.name.lower().endswith(WEIGHT_SUFFIXES)), None)
