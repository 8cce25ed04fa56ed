"""Rules of the heuristic judge for stage S2: weights, a look at an input, packages, and the model on the GPU."""

from __future__ import annotations

import re
from itertools import chain

from automedbench.judge.evidence import clip, file_line
from automedbench.judge.heuristic.view import Verdict, View
from automedbench.judge.heuristic.weights import fetched_weights, given_weights, loads
from automedbench.judge.trace import Event, words_of
from automedbench.reading.code import Spot, third_party

MAX_SETUP_FAILURES = 5

_INPUT_READS = frozenset(
    "imread Image.open nib.load nibabel.load np.load numpy.load ReadImage dcmread load_img".split()  # noqa: SIM905
)
_INPUT_PROGRAMS = frozenset("identify fslhd fslinfo mrinfo nib-ls exiftool file dcmdump gdcmdump c3d".split())  # noqa: SIM905
_PLAIN_IO = frozenset("numpy pandas PIL nibabel matplotlib SimpleITK h5py pydicom imageio tqdm yaml".split())  # noqa: SIM905
_CPU_ONLY = re.compile(r"cuda(?: is)?[ _]available\W+false|\bdevice\W+cpu\b|no cuda|cuda is not available", re.I)
_GPU_ARGUMENT = re.compile(r"^(?:device|device_map|map_location|devices|gpu)=(?:['\"](?:cuda|gpu|auto)|0$|\[0|\{)|cuda")
_PLAIN_TENSORS = re.compile(r"\b(?:zeros|ones|empty|rand|randn|arange|full|tensor|eye|linspace|Generator|autocast)\b")
_GPU_FACTS = frozenset(["is_cuda", "memory_allocated", "max_memory_allocated", "memory_reserved", "mem_get_info"])


def weights_obtained(view: View) -> Verdict:
    """Weights that a program fetched lie in the workspace, or given ones were loaded; classical methods by track."""
    for number, event in enumerate(view.events):
        path = fetched_weights(event, view.events[:number], view.evidence.files) if event.ok else None
        if path is not None:
            line = clip(file_line(path, view.evidence.files[path]))
            return Verdict(1, f"fetched by code that ran, there since turn {event.call.turn}", line)
    for event in view.events:
        if (spot := given_weights(event)) is not None:
            return view.found(1, "weights that the run was given were loaded", event, spot)
    return _classical(view) or Verdict(0, "no code that ran fetched weights that lie in the workspace")


def _classical(view: View) -> Verdict | None:
    """Where the track allows it: a function of a package that ran where outputs were made, without any weights."""
    functions = frozenset(view.vocabulary.classical)
    for event in view.events:
        spot = next((spot for spot in event.facts.calls if spot.name.rpartition(".")[2] in functions), None)
        if event.ok and event.cases and spot is not None and loads(event) is None:
            return view.found(1, f"classical method {spot.name} of an installed package ran", event, spot)
    return None


# --- the input ----------------------------------------------------------------------------------------------------


def input_inspected(view: View) -> Verdict:
    """Before the full run, code opened an input and showed one of its properties."""
    properties = frozenset(view.vocabulary.input_check)
    wanted = set(view.vocabulary.input_names)
    for event in view.before_batch:
        read = [spot.name for spot in (*event.facts.strings, *event.facts.commands)]
        wanted = {name for name in wanted if not any(name in text for text in read)}
        spot = _shown_property(event, properties) or _shown_by_program(event)
        if spot is not None and not wanted and event.call.stdout.strip():
            return view.found(1, "code shows properties of an input", event, spot)
    which = f" (and read {', '.join(sorted(wanted))})" if wanted else ""
    return Verdict(0, f"no code that ran before the full run opened an input{which} and showed its properties")


def _shown_property(event: Event, properties: frozenset[str]) -> Spot | None:
    if not any(call.is_a(_INPUT_READS) for call in event.facts.calls):
        return None
    return next((spot for spot in event.facts.shown if words_of(spot) & properties), None)


def _shown_by_program(event: Event) -> Spot | None:
    programs = (spot for spot in event.facts.commands if spot.name.partition(" ")[0] in _INPUT_PROGRAMS)
    return next((spot for spot in programs if "/" in spot.name), None)


# --- the environment ----------------------------------------------------------------------------------------------


def environment_works(view: View) -> Verdict:
    """Packages were installed or imported, the last try went well, and the method did not shrink to plain arrays."""
    outcomes = [(event, spot) for event in view.events if (spot := event.environment) and (event.ok or event.failed)]
    good = [(event, spot) for event, spot in outcomes if event.ok]
    if not good:
        return Verdict(0, "no code that ran installed or imported a package")
    if outcomes[-1][0].environment_failed:
        return Verdict(0, "the last set-up failure was never solved")
    failed = [event for event, _ in outcomes if event.environment_failed]
    if failed and not any(map(_brings_more, view.events)):
        return Verdict(0, "what failed to install was never solved or replaced: only arrays and files were handled")
    return view.found(1, "packages installed or imported without failing", *good[-1])


def _brings_more(event: Event) -> bool:
    """It ran, and installed or imported something beside packages that read files and hold arrays."""
    if not event.ok:
        return False
    packages = {spot.name.partition(".")[0] for spot in event.facts.imports if third_party(spot.name)}
    return event.installs is not None or not packages <= _PLAIN_IO


def few_setup_failures(view: View) -> Verdict:
    """At most five executions failed because of installing or importing, and something was set up."""
    good = [(event, spot) for event in view.events if event.ok and (spot := event.environment)]
    failures = sum(event.environment_failed for event in view.events)
    if not good:
        return Verdict(0, "nothing was set up")
    if failures > MAX_SETUP_FAILURES:
        return Verdict(0, f"{failures} executions failed in set-up (at most {MAX_SETUP_FAILURES})")
    return view.found(1, f"{failures} executions failed in set-up", *good[0])


# --- the GPU ------------------------------------------------------------------------------------------------------


def model_on_gpu(view: View) -> Verdict:
    """Code that ran loaded weights, asked for the GPU, and what it printed beside constant texts shows the GPU."""
    for event in view.events:
        spot = _asks_for_gpu(event)
        if event.ok and spot is not None and _has_model(event) and _shows_gpu(event):
            return view.found(1, "weights loaded and the device shown", event, spot)
    return Verdict(0, "no code that ran loaded weights on the GPU and showed the device")


def _has_model(event: Event) -> bool:
    """It loads weights, or gives a model's function the GPU to work on."""
    arguments = (spot for spot in event.facts.keywords if spot.name.startswith(("device=", "device_map=")))
    return loads(event) is not None or any(_GPU_ARGUMENT.search(s.name) and _is_model(s) for s in arguments)


def _is_model(spot: Spot) -> bool:
    return not _PLAIN_TENSORS.search(spot.line)


def _asks_for_gpu(event: Event) -> Spot | None:
    facts = event.facts
    return next(
        chain(
            (spot for spot in facts.calls if spot.name.endswith(".cuda") or spot.name == "cuda"),
            (spot for spot in facts.strings if spot.name.startswith("cuda")),
            (spot for spot in facts.keywords if _GPU_ARGUMENT.search(spot.name)),
        ),
        None,
    )


def _shows_gpu(event: Event) -> bool:
    """Without the texts that are printed in any case, what was printed names CUDA, or tells of GPU memory."""
    printed = f"{event.call.stdout}\n{event.call.stderr}"
    for text in sorted(event.facts.said, key=len, reverse=True):
        if text:
            printed = printed.replace(text, " ")
    if _CPU_ONLY.search(event.call.stdout):
        return False
    told = any(words_of(spot) & _GPU_FACTS for spot in event.facts.shown)
    return "cuda" in printed.casefold() or (told and bool(re.search(r"\bTrue\b|\b[1-9]\d*", printed)))
