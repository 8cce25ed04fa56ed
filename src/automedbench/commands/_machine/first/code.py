"""Programs that tries run in an agent container: each prints FOUND and one JSON object at its end.

Names in capitals are assigned in front of them.
"""

from __future__ import annotations

_ASK = r"""
import json, os, urllib.error, urllib.parse, urllib.request
HUB = os.environ.get("HF_ENDPOINT", "https://huggingface.co")

def ask(url):
    try:
        return urllib.request.urlopen(url, timeout=60)
    except urllib.error.HTTPError as error:
        words = error.read(300).decode("utf-8", "replace").strip()
        raise OSError(f"HTTP {error.code}: {words or error.reason}") from None

def listed(where, at):
    with ask(f"{HUB}/api/models/{where}/revision/{urllib.parse.quote(at or 'main', safe='')}") as answer:
        return [file["rfilename"] for file in json.load(answer)["siblings"]]

def address(where, at, name):
    return f"{HUB}/{where}/resolve/{urllib.parse.quote(at or 'main', safe='')}/{urllib.parse.quote(name)}"
"""

PACKAGES = (
    _ASK
    + r"""
import subprocess, sys
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-deps", "--disable-pip-version-check"]

def install():
    command = [*PIP, "--retries", "1", "--timeout", "20", "--target", "first-run", WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
    return "" if done.returncode == 0 else (lines or ["no message"])[-1][-300:]

def read():
    names = listed(MODEL, REVISION)
    small = [name for name in ("config.json", "README.md", ".gitattributes") if name in names] or names
    with ask(address(MODEL, REVISION, small[0])) as answer:
        answer.read(1 << 16)
    return ""

def tried(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:400]

print("FOUND" + json.dumps({"pip": tried(install) if WHEEL else None, "hub": tried(read) if MODEL else None}))
"""
)

CHECKPOINT = (
    _ASK
    + r"""
import fnmatch, inspect, pathlib
ENDS = (".safetensors", ".bin", ".pth", ".pt", ".ckpt")

class TooLarge(Exception):
    pass

def fetch(url, path, size):
    with ask(url) as answer:
        length = int(answer.headers.get("Content-Length") or 0)
        if max(length, size or 0) > LIMIT:
            raise TooLarge(f"larger than {LIMIT // 10**6} MB")
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            while block := answer.read(1 << 20):
                file.write(block)
    found = path.stat().st_size
    if found < max(length, size or 0):
        raise OSError(f"IncompleteRead: {path.name} has {found} bytes, and {max(length, size or 0)} are published")

def get(place):
    where, at = place["where"], place["at"]
    names = listed(where, at) if place["hub"] else list(place["names"])
    if place["hub"] and place["names"]:
        names = [name for name in names if any(fnmatch.fnmatch(name, wanted) for wanted in place["names"])]
    weights = [name for end in ENDS for name in names if name.endswith(end)]
    if not weights:
        raise OSError("HTTP 404: there is no file of weights any more")
    folder = pathlib.Path("checkpoint")
    for name in [weights[0], *(each for each in names if each.endswith(".json") and "/" not in each)]:
        url = address(where, at, name) if place["hub"] else f"{where}/{name}"
        fetch(url, folder / name, place["names"].get(name))
    return folder / weights[0]

def whole(path):
    import transformers
    named = json.loads((path.parent / "config.json").read_text()).get("architectures") or [""]
    kind = getattr(transformers, named[0], transformers.AutoModel)  # another head would have no weights
    model = kind.from_pretrained(path.parent).eval()
    size = getattr(model.config, "image_size", None) or getattr(
        getattr(model.config, "vision_config", None), "image_size", 64)
    given = {"pixel_values": torch.rand(1, getattr(model.config, "num_channels", 3), size, size),
             "input_ids": torch.ones(1, 4, dtype=torch.long)}
    takes = inspect.signature(model.forward).parameters
    output = model(**{name: value for name, value in given.items() if name in takes})
    return type(model).__name__, output[0]

def parts(path):
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file
        held = load_file(path)
    else:
        held = torch.load(path, map_location="cpu", weights_only=False)
    model = next((each for each in (held, *(held.values() if isinstance(held, dict) else ()))
                  if isinstance(each, torch.nn.Module)), None)
    if model is not None:
        output = model.float().eval()(torch.rand(1, 3, 64, 64))
        return type(model).__name__, output[0] if isinstance(output, (list, tuple)) else output
    found = list(tensors(held))
    layer = next(each for each in found if each.dim() > 1 and each.is_floating_point()).float().flatten(1)
    return f"{len(found)} tensors, first layer", layer @ torch.rand(layer.shape[1])

def tensors(held):
    if isinstance(held, torch.Tensor):
        yield held
    elif isinstance(held, dict):
        for each in held.values():
            yield from tensors(each)

def loaded(path):
    config = path.parent / "config.json"
    said = json.loads(config.read_text()) if config.is_file() else {}
    own_code = "auto_map" in said  # it would be the publisher's that runs
    name, output = whole(path) if "model_type" in said and not own_code else parts(path)
    if not torch.isfinite(output).all():
        raise ValueError(f"{name} computes values that are not finite")
    return f"{path.name}, {path.stat().st_size / 1e6:.1f} MB: {name} computes {tuple(output.shape)} of random input"

import torch
torch.manual_seed(0)
told = {"error": "", "text": "", "where": "", "fetched": False}
for place in PLACES:
    told["where"] = place["where"]
    try:
        path = get(place)
        told["fetched"] = True
        told["text"] = loaded(path)
        break
    except TooLarge as error:
        told["text"] = f"not tried: {error}"
    except Exception as error:
        told["error"] = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        break
print("FOUND" + json.dumps(told))
"""
)

KERNEL = r"""
import ctypes, json
driver = ctypes.c_int()
ask = getattr(ctypes.CDLL("libcuda.so.1"), "cuDriverGetVersion", None)
if ask is not None:
    ask(ctypes.byref(driver))
told = {"driver": driver.value, "error": "", "text": "a CUDA context; the image has no PyTorch to compute with"}
try:
    import torch
    for number in range(torch.cuda.device_count() or 1):
        square = torch.ones(64, 64, device=f"cuda:{number}")
        if (found := (square @ square).sum().item()) != 64**3:
            raise ArithmeticError(f"a product of 64 × 64 ones sums to {found}, not to {64**3}")
    told["text"] = f"torch {torch.__version__} computes under the filter, CUDA {torch.version.cuda}"
except ImportError:
    pass
except Exception as error:
    told["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
print("FOUND" + json.dumps(told))
"""
