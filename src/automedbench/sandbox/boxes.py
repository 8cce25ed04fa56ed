"""Backends of the sandbox: Apptainer, and a local one that isolates nothing and is for trusted scripts only.

One container lives as long as the run, and sees only what launcher names; code calls are programs in it, started by
its runner. One that ends before the run is reported and started again. One that cannot start, or does not pass its
probe, is compared with one that has an empty workspace: where that passes, what the agent left is to blame.

In a container with the very flags of a run, before the first call and after the last one, a probe looks for what must
not be there (docs/specification.md, 9.8). What leaks is the machine's fault, never the agent's; what is merely absent
(a system call filter, the hook) is recorded in ``Enforced``.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import hashlib
import json
import logging
import math
import os
import platform
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from automedbench.base.cards import Limits
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import sha256_file
from automedbench.base.records import Enforced, Finding, GpuUse, Language, Model, Process
from automedbench.sandbox import places
from automedbench.sandbox.container import gpus, launcher, remedies
from automedbench.sandbox.container.cgroup import job_memory
from automedbench.sandbox.container.gpu_use import Meter, Nvml
from automedbench.sandbox.container.layer import Layer
from automedbench.sandbox.container.process import (
    ANEW,
    GRACE_SECONDS,
    PATIENCE_SECONDS,
    CodeResult,
    Guard,
    Outcome,
    Stop,
    Supervised,
    Watch,
    default_limits,
    lost_outcome,
    to_result,
    write_code,
)
from automedbench.sandbox.container.scratch import remove_tree, repair_modes, scratch_folder
from automedbench.sandbox.container.turns import Clerk, Turns
from automedbench.sandbox.container.watchdog import FULL_BY_OTHERS, measure_space
from automedbench.sandbox.evidence.decoy import Decoy
from automedbench.sandbox.evidence.hook_reports import EvidencePipe
from automedbench.sandbox.evidence.trace import Trace, TracedProgram

if TYPE_CHECKING:
    from automedbench.sandbox.egress import Egress

# Far more than the 0.4 s that a start takes, because a cold image on a shared file system may be slow.
START_SECONDS = 60.0
HELD = (
    "Your background processes have had the GPU, which other runs share, for {:.0f} s. End them with your next call: "
    "those that run before the call after this one are ended."
)
CLEARED = "Before this call your background processes were ended: they had kept the GPU for too long."
MAX_STARTS = 20
"""Containers of one run; an agent that has used them up runs no more code."""
HOOK = Path(__file__).parent / "evidence" / "hook"
SPOILED = "no container passes any more in this workspace"
"""Beginning of the note on a run that its own workspace has ended."""


class Sandbox(abc.ABC):
    """A place to run agent code for one attempt. Use as a context manager: leaving it ends every process."""

    data_dir: str
    """Path of the public data as the agent's code sees it."""
    workspace_dir: str
    """Path of the workspace as the agent's code sees it."""
    enforced: Enforced
    peak_memory: int | None = None
    """Most bytes that the agent's code had in use; None before a call."""
    _limits: Limits
    _findings: list[Finding]
    _scratch: Path | None = None
    _box: Supervised | None = None
    _starts: int = 0
    _anew: bool = False
    _left_s: float | None = None
    _lost: str = ""
    """Why the container ended between two calls."""
    _end_reported: bool = False
    _used: bool = False
    """Code of the agent's has run in this workspace."""
    _spoiled: str = ""
    """Why the workspace lets no container pass; empty as long as it does."""
    _last: tuple[int, int] = (0, 0)
    _meter: Meter | None = None
    _turns: Turns | None = None
    _clerk: Clerk | None = None
    """Takes turns when a process opens a card; without one every call has its turn from its start."""
    _waited_s: float = 0.0
    """Seconds in which calls waited for their turn before they began."""
    _paused_s: float = 0.0
    """Seconds in which calls stood still, in containers that have ended."""
    _drained_s: float = 0.0
    _has_turn: bool = False
    """The next call has its turn."""
    _longest_turn_s: float = math.inf
    _told: bool = False
    """The run was told that its background work has had shared cards for too long."""
    _card_note: str = ""
    _trace: Trace | None = None
    _pipe: EvidencePipe | None = None
    _decoy: Decoy | None = None
    _egress: Egress | None = None
    _leave: Callable[[], None]
    """End and remove all that entering made."""

    def __exit__(self, *_: object) -> None:
        self._leave()

    def run_code(
        self,
        language: Language,
        code: str,
        *,
        call: int,
        turn: int,
        log: Path,
        timeout_s: float,
        watch: Watch | None = None,
    ) -> CodeResult:
        """Run one code call as a program of its own with the workspace as working directory.

        ``log`` is the folder outside the workspace that receives ``0007.py|sh``, ``0007.out`` and ``0007.err``.
        ``watch`` is called about twice a second, from the waiting thread; a Stop ends the call as a limit does.
        Raises InfrastructureError when the sandbox itself cannot start.
        """
        path = write_code(log, call, language, code)
        self._collect_late(turn, call)
        box = self._ensure_container()
        if box is None:
            if self._turns is not None:
                self._turns.close()
            reason = self._spoiled or f"{MAX_STARTS} containers of this run have ended; no more code is run"
            return to_result(lost_outcome(reason), timeout_s)
        if self._turns is not None and not (self._has_turn and (self._clerk or self._turns.held)):
            self.take_turn()
        self._used = True
        both = self._watch if watch is None else lambda: self._watch() or watch()
        outcome = self._call(box, path, language, call, timeout_s, both)
        self._collect(turn, call)
        if outcome.reason.startswith(FULL_BY_OTHERS):
            raise InfrastructureError(f"The {outcome.reason}.\nFree space, then run the same command again.")
        self.peak_memory = max(filter(None, (self.peak_memory, outcome.memory)), default=None)
        self._end_reported = outcome.gone
        if self._card_note:
            outcome, self._card_note = replace(outcome, note=self._card_note), ""
        if self._anew and call > 1:
            outcome = replace(outcome, note=f"{ANEW} It had ended: {self._lost}." if self._lost else ANEW)
        self._anew, self._lost = False, ""
        return to_result(outcome, timeout_s)

    def take_turn(self) -> float:
        """Wait for the run's turn on cards that it shares, before a call; seconds that this took, none of the run's.

        Where turns begin with the first use of a card, nothing is waited for here. Background work keeps the turn. When
        it has lasted too long, the run is told; before the call after that, the background work is ended. Raises
        InfrastructureError where another program computes on a card.
        """
        turns, box, began = self._turns, self._box, time.monotonic()
        self._has_turn = True
        if turns is None:
            return 0.0
        if box is not None and box.alive and box.keep_cards():
            if turns.age_s < self._longest_turn_s or not self._told:
                self._told = turns.age_s >= self._longest_turn_s
                self._card_note = HELD.format(turns.age_s) if self._told else ""
                return 0.0
            box.clear()
            self._card_note = CLEARED
            if not turns.wait_for_end(GRACE_SECONDS + PATIENCE_SECONDS):
                self.end()
        self._told = False
        if self._clerk is None:
            if not turns.close(GRACE_SECONDS + PATIENCE_SECONDS):
                self.end()
            left_s = self._left_s
            self.set_deadline(None)  # nothing of the agent's is left in it
            self._waited_s += turns.take()
            self.set_deadline(left_s)
        return time.monotonic() - began

    def drain_gpu_wait(self) -> float:
        """Seconds since the last call of this method in which a call waited for shared cards; none of the run's."""
        before, self._drained_s = self._drained_s, self._pauses_s
        return self._drained_s - before

    @property
    def _pauses_s(self) -> float:
        return self._paused_s + (0.0 if self._box is None else self._box.pause.seconds)

    def wait(self, seconds: float, process: int | None) -> str:
        """Wait for time, or for the end of a background process by the id it has inside.

        Gives what ended the wait: time, ended, unknown (no such process) or gone (the container has ended).
        """
        box = self._ensure_container() if self._box is None else self._box
        return box.wait(seconds, process, self._watch) if box is not None and box.alive else "gone"

    def set_deadline(self, seconds: float | None) -> None:
        """Set how much time the run has left; its container ends then, also when this process hangs."""
        self._left_s = seconds
        if self._box is not None:
            self._box.set_deadline(seconds)

    @contextlib.contextmanager
    def frozen(self, seconds: float) -> Iterator[None]:
        """Let the run's processes stand still within the context, for about so long; its time stands still too."""
        box = self._box
        if box is not None:
            box.freeze(seconds)
        try:
            yield
        finally:
            if box is not None:
                box.thaw()

    def end(self) -> None:
        """End every process of the run; a later call would start a container anew."""
        if self._box is not None:
            if not self._box.alive and not self._end_reported and self._box.gone is not None:
                self._lost = str(self._box.gone["reason"])
            self._box.close()
            self._paused_s = self._pauses_s
            self._box = None
            self._collect(*self._last, late=True)

    def selfcheck(self) -> str:
        """Probe the isolation with the flags of a run; done on entering, and again after the last call.

        Gives why it fails by what the agent left in its workspace; empty when it passes. Raises InfrastructureError
        when something leaks: the machine's fault.
        """
        return ""

    def passes_anew(self) -> bool:
        """Check whether a container of the same image and flags passes in an empty workspace, now and here."""
        return False

    def drain_findings(self) -> list[Finding]:
        """Findings of tripwire, hook and egress since the last call of this method, in order."""
        drained, self._findings = self._findings, []
        return drained

    def drain_gpu_use(self) -> GpuUse | None:
        """GPU usage of the run since the last call of this method; None when it cannot be measured."""
        return self._meter.drain() if self._meter is not None else None

    @property
    def gpu_turns_s(self) -> tuple[float, float] | None:
        """Seconds in which the run held shared cards, and waited for them, so far; None for cards of its own."""
        return None if self._turns is None else (self._turns.held_s, self._waited_s + self._pauses_s)

    @property
    def gpu_idle_s(self) -> float | None:
        """The longest time in seconds in which a GPU of the run did not compute; where the driver does not tell, in
        which the run had no turn on shared ones. None when neither is known.
        """
        told = self._meter.idle_s if self._meter is not None else None
        return self._turns.idle_s if told is None and self._turns is not None else told

    @property
    def gpu_busy_s(self) -> float | None:
        """Seconds in which the run's GPUs computed so far, summed; None when they cannot be measured."""
        return self._meter.busy_s if self._meter is not None else None

    def programs(self) -> list[TracedProgram]:
        """Shells and Pythons that started since the last call of this method, or ran then; none without a trace.

        A tracer that has died ends the run elsewhere.
        """
        with contextlib.suppress(InfrastructureError):
            return self._trace.programs() if self._trace is not None else []
        return []

    def drain_processes(self) -> list[Process] | None:
        """Files that each process opened since the last call of this method; None without a trace."""
        with contextlib.suppress(InfrastructureError):
            return self._trace.processes() if self._trace is not None else None
        return None

    @abc.abstractmethod
    def _start(self, tmp: Path) -> Supervised:
        """Start the runner; ``tmp`` is the folder of its temporary files."""

    @abc.abstractmethod
    def _program(self, path: Path, language: Language) -> list[str]:
        """Argument vector of a call, as the runner takes it."""

    def _collect_late(self, turn: int, call: int) -> None:
        """Findings from background processes, attributed to the previous call."""
        self._collect(*self._last, late=True)
        self._last = (turn, call)
        if self._egress is not None:
            self._egress.set_call(turn, call)

    def _collect(self, turn: int, call: int, *, late: bool = False) -> None:
        """Take what tripwire, trace, hook and egress have seen; before the first call it is of none."""
        about: dict[str, int | None] = {"turn": turn, "call": call} if call else {"turn": None, "call": None}
        found = self._trace.drain(**about) if self._trace is not None and self._decoy is None else []
        found += self._decoy.drain(self._trace, **about) if self._decoy is not None else []
        found += self._pipe.findings(**about) if self._pipe is not None else []
        found += self._egress.drain(**about) if self._egress is not None else []
        if late:
            found = [each.model_copy(update={"id": f"{each.id}-late"}) for each in found]
        self._findings += found

    def _watch(self) -> Stop | None:
        """Reason to end a call or a wait that only this kind of sandbox notices."""
        return None

    def _ensure_container(self) -> Supervised | None:
        """The container, started when there is none; None when there were too many."""
        if self._box is not None and self._box.alive:
            return self._box
        if self._starts >= MAX_STARTS or self._spoiled:
            return None
        self.end()
        self._starts += 1
        self._anew, self._end_reported = True, False
        self._box = self._attempt(self._start_container)
        if self._box is not None:
            self._box.set_deadline(self._left_s)
        return self._box

    def _attempt(self, start: Callable[[], Supervised]) -> Supervised | None:
        """A container; None, from then on, where its workspace fails twice and an empty one passes in between.

        Raises InfrastructureError where the machine fails, and before any code of the agent's ran.
        """
        try:
            return start()
        except InfrastructureError:
            if not self._used or not self.passes_anew():
                raise
        try:
            return start()
        except InfrastructureError as error:
            self._spoiled = f"{SPOILED}, and one does in an empty workspace: {str(error).splitlines()[0][:200]}"
        return None

    def _start_container(self) -> Supervised:
        scratch = self._require_scratch()
        for old in scratch.glob("tmp-*"):
            remove_tree(old)
        return self._start(Path(tempfile.mkdtemp(prefix="tmp-", dir=scratch)))

    def _call(
        self, box: Supervised, path: Path, language: Language, call: int, timeout_s: float, watch: Watch | None = None
    ) -> Outcome:
        if self._turns is not None and self._clerk is None:
            self._turns.lend(functools.partial(box.lend, kept=True))
        self._has_turn = False
        out, err = path.with_suffix(".out"), path.with_suffix(".err")
        program = self._program(path, language)
        with contextlib.nullcontext() if self._clerk is None else self._clerk.beginning(box):
            box.begin(call, program, out, err, timeout_s)
        return box.attend(timeout_s, watch)

    def _require_scratch(self) -> Path:
        if self._scratch is None:
            raise RuntimeError("use the sandbox as a context manager")
        return self._scratch


class ApptainerSandbox(Sandbox):
    """Runs each call in the run's container; leaving the context ends it, and removes scratch folders and decoy."""

    data_dir = places.DATA_DIR
    workspace_dir = places.WORKSPACE

    def __init__(
        self,
        *,
        image: Path | None,
        public: Path,
        workspace: Path,
        network: launcher.Network = "sealed",
        gpu: int = 0,
        gpu_model: str | None = None,
        gpu_share: int = 1,
        gpu_lease_s: float = math.inf,
        decoy: Decoy | None = None,
        limits: Limits | None = None,
        services: places.Services | None = None,
        layer: Layer | None = None,
        egress: Egress | None = None,
        skills: Path | None = None,
        used: bool = False,
    ) -> None:
        """Raises MissingDataError when Apptainer, image or data are not there.

        ``used``: code of the agent's has run in the workspace, in an earlier process. ``gpu`` cards (of ``gpu_model``)
        are the run's alone from entering to leaving, which raises InfrastructureError where there are none; with
        ``gpu_share`` so many runs have them in turn (``take_turn``), background work for ``gpu_lease_s``. Services of
        an entered ``egress`` are offered beside ``services``; its findings are joined to those of a call.
        """
        self._runtime = launcher.find_runtime()
        if image is None or not image.exists():
            raise MissingDataError(f"No container image at {image}.\nRun `snakemake prepare`.")
        if not public.exists():
            raise MissingDataError(f"No public data at {public}.\nRun `snakemake prepare`.")
        self._image, self._public, self._workspace = image.resolve(), public.resolve(), workspace.resolve()
        self._home = workspace.absolute().parent
        self._network: launcher.Network = network
        self._wanted = (gpu, gpu_model, gpu_share)
        self._longest_turn_s = gpu_lease_s
        self._devices: launcher.Devices | None = None
        self._decoy = decoy
        self._limits = limits or Limits()
        self._egress = egress
        self._services = services
        self._layer = layer
        self._skills = skills.resolve() if skills else None
        if egress is not None:
            self._services = egress.services if services is None else egress.services + services
        self._findings = []
        self._filter: Path | None = None
        self._apart = True
        self._shut: Path | None = None
        self._proven = False  # a container started with these flags: one that does not later needs no weaker ones
        self._used = used
        self.enforced = Enforced(
            backend="apptainer",
            network=network,
            image_sha256=sha256_file(self._image) if self._image.is_file() else None,  # a folder, without FUSE
            layer_sha256=layer.record.sha256 if layer else None,
            decoy=decoy is not None,
            gpu=gpu > 0,
            gpu_share=gpu_share if gpu else 1,
            memory_bytes=job_memory(),
            egress_sha256=egress.settings.digest if egress is not None else None,
            from_cache=egress is not None and egress.settings.offline,
        )

    def __enter__(self) -> ApptainerSandbox:
        with contextlib.ExitStack() as stack:
            # Node-local, and with a name that gives nothing away to the agent: /proc/self/mountinfo shows it.
            scratch = self._scratch = stack.enter_context(scratch_folder("sandbox-"))
            if not self._used:
                self._require_room()
            shutil.copytree(HOOK, scratch / "hook", ignore=shutil.ignore_patterns("__pycache__"))
            (scratch / "calls").mkdir()
            self._pipe = EvidencePipe(scratch / "pipe")
            stack.callback(self._pipe.close)
            self._filter = scratch / "filter.json"
            launcher.write_profile(self._filter)
            cards = self._take_cards(stack)
            self._begin_trace()
            stack.callback(self._end_trace)
            self._box = self._attempt(self._probe)
            stack.callback(self._end_quietly)
            if cards and self._box is not None:
                self._require_computing(self._box, cards)
                self._start_meter(stack, cards)
            self._leave = stack.pop_all().close
        self._starts, self._anew = 1, True
        return self

    def _require_room(self) -> None:
        """Raise InfrastructureError where a disk has less free than a run leaves to the node."""
        for folder in (self._home, self._require_scratch()):
            free, reserve = measure_space(folder)
            if free < reserve:
                found, least = f"{free / 1e9:.2g} GB", f"{reserve / 1e9:.2g} GB"
                raise InfrastructureError(
                    f"The disk of {folder} has {found} free, and a run leaves {least} to the node.\n"
                    "Free space there, then run the same command again."
                )

    def _end_quietly(self) -> None:
        with contextlib.suppress(InfrastructureError):  # a proxy that has ended has no evidence to give
            self.end()

    def _take_cards(self, stack: contextlib.ExitStack) -> tuple[gpus.Card, ...]:
        number, model, share = self._wanted
        if not number:
            return ()
        grant = gpus.grant_cards(number, model, share=share)
        stack.callback(grant.close)
        if share > 1:
            ordered = sorted(grant.cards, key=lambda card: (card.index, card.uuid))
            self._turns = Turns([(card.uuid, card.nodes[-1]) for card in ordered], _idle_check())
            stack.callback(self._turns.close)
        self._devices = gpus.list_devices(grant.cards)
        if share > 1 and may_open_for_others():
            self._shut = self._require_scratch() / "shut"
            self._shut.mkdir()
            for node in self._devices.nodes:
                (self._shut / node.name).symlink_to(node)
        self.enforced = self.enforced.model_copy(update={"gpu_names": [card.name for card in grant.cards]})
        return grant.cards

    def _require_computing(self, box: Supervised, cards: tuple[gpus.Card, ...]) -> None:
        """Raise InfrastructureError unless the cards compute inside; after a call it might be the agent's fault."""
        self.take_turn()
        path = write_code(self._require_scratch(), 0, "bash", gpus.CUDA_PROBE)
        outcome = self._call(box, path, "bash", 0, PROBE_SECONDS, self._watch)
        self.drain_gpu_wait()
        self._offered_path(path).unlink()
        gpus.require_cuda(outcome.stdout.text(), outcome.stderr.text(), cards)

    def _start_meter(self, stack: contextlib.ExitStack, cards: tuple[gpus.Card, ...]) -> None:
        with contextlib.suppress(OSError):  # a driver without NVML: nothing is recorded
            nvml = Nvml()
            has_turn = None if self._turns is None else lambda turns=self._turns: turns.held
            self._meter = Meter([nvml.reading(card.uuid) for card in cards], has_turn=has_turn).start()
            stack.callback(self._meter.close)

    def selfcheck(self) -> str:
        """See ``Sandbox.selfcheck``: ends the run's container, and looks into a new one."""
        self.end()
        box = None if self._spoiled else self._attempt(self._probe)
        if box is not None:
            box.close()
        return self._spoiled

    def passes_anew(self) -> bool:
        """See ``Sandbox.passes_anew``."""
        self._end_quietly()
        workspace = self._workspace
        try:
            if self._trace is not None and not self._trace.alive:
                self._end_trace()
                self._begin_trace()
            self._require_room()
            self._workspace = Path(tempfile.mkdtemp(prefix="empty-", dir=self._scratch))
            self._probe().close()
        except (InfrastructureError, OSError):
            return False
        finally:
            self._workspace = workspace
        return True

    def _probe(self) -> Supervised:
        """A new container in which nothing leaks; records filter, hook and limits in ``enforced``."""
        scratch, pipe = self._require_scratch(), self._pipe
        assert pipe is not None
        canary = scratch / "canary"
        canary.write_text(secrets.token_hex(16))
        box = self._start_container()
        try:
            shut = self._devices.nodes if self._clerk and self._devices else ()
            path = write_code(scratch, 0, "bash", probe_code([canary, Path.home(), self._workspace.parent], shut))
            outcome = self._call(box, path, "bash", 0, PROBE_SECONDS)
            hooked = any(found.rule == "runtime.native_escape" for found in pipe.findings(turn=None, call=None))
            self._offered_path(path).unlink()
            probe = read_probe(path.with_suffix(".out").read_bytes(), outcome.stderr.text())
            require_isolation(probe, sealed=self._network != "open")
            seen = self._trace is None or bool(self._trace.take().acts)
        except BaseException:
            box.close()
            raise
        if not seen:  # a container whose tracer is gone can open nothing
            box.close()
            self._end_trace()
            return self._probe()
        if probe.may_open:
            box.close()
            self._take_turns_before_calls()
            return self._probe()
        self.drain_processes()  # the probe's own
        self._require_watched_decoy()
        self._record_probe(probe, hooked, box)
        return box

    def _record_probe(self, probe: ContainmentProbe, hooked: bool, box: Supervised) -> None:
        if not probe.seccomp:
            logging.getLogger(__name__).warning(
                "The container runtime applies no system call filter (it was built without libseccomp)."
            )
        limited = probe.max_processes > 0 and self._limits.max_processes is not None
        self.enforced = self.enforced.model_copy(
            update={
                "seccomp": probe.seccomp,
                "hook": hooked and probe.hook_in_place,
                "trace": self._trace is not None,
                "tripwire": self._decoy is not None and self._decoy.watched,
                "selfcheck": True,
                "max_processes": self._limits.max_processes if limited or box.grouped else None,
                "limits": "cgroup" if box.grouped else "polled",
            }
        )

    def _start(self, tmp: Path) -> Supervised:
        """A container whose runner answers; without own counts or system call filter where the machine has none."""
        repair_modes(self._workspace)
        box = self._launch(tmp)
        if box.wait_until_ready(START_SECONDS):
            self._proven = True
            return box
        output = box.last_words.encode("latin-1")
        box.close()
        if self._apart and not self._proven:
            self._apart = False  # Apptainer's setuid helper works in no user namespace
            return self._start(tmp)
        if self._clerk is not None and not self._proven:
            self._take_turns_before_calls()
            return self._start(tmp)
        if b"seccomp" in output and self._filter is not None and not self._proven:
            self._filter = None
            return self._start(tmp)
        raise _start_failure(self._image, output)

    def _launch(self, tmp: Path) -> Supervised:
        scratch = self._require_scratch()
        assert self._pipe is not None
        role = launcher.AgentRole(
            image=self._image,
            public=self._public,
            workspace=self._workspace,
            tmp=tmp,
            calls=scratch / "calls",
            network=self._network,
            devices=self._devices,
            decoy=self._decoy.folder if self._decoy is not None else None,
            services=self._services,
            layer=self._layer.path.resolve() if self._layer else None,
            skills=self._skills,
            shut=self._shut if self._clerk else None,
            seccomp=self._filter,
            hook=(scratch / "hook", self._pipe.path),
            trace=None if self._trace is None else self._trace.expect(),
        )
        return Supervised(
            launcher.agent_command(role, runtime=self._runtime),
            env=launcher.host_environment(scratch, self._runtime, self._services),
            cwd=scratch,
            limits=default_limits(os.geteuid(), self._limits, apart=self._apart),
            guard=Guard([self._workspace, tmp], self._limits, shm=True, home=self._home),
        )

    def _program(self, path: Path, language: Language) -> list[str]:
        shutil.copyfile(path, self._offered_path(path))
        return [launcher.INTERPRETERS[language], f"{places.CALL_DIR}/{path.name}"]

    def _offered_path(self, path: Path) -> Path:
        return self._require_scratch() / "calls" / path.name

    def _watch(self) -> Stop | None:
        """Empty the tripwire's queue, which the kernel bounds; end a container that lost its tracer or that trains."""
        assert self._pipe is not None
        if self._clerk is not None:
            self._clerk.check()
        if self._decoy is not None:
            self._decoy.poll()
        if self._trace is not None and not self._trace.alive:
            return Stop("the tracer has died", container=True)
        return self._pipe.watch()

    def _take_turns_before_calls(self) -> None:
        """Leave the cards open to all calls, where the runtime cannot mount them otherwise."""
        self._shut = None
        self._end_trace()
        self._begin_trace()

    def _begin_trace(self) -> None:
        self._trace = Trace(self._require_scratch())
        if self._turns is not None and self._devices is not None and self._shut is not None:
            self._clerk = Clerk(self._turns, self._trace, self._devices.nodes)

    def _end_trace(self) -> None:
        if self._clerk is not None:
            self._clerk.close()
            self._clerk = None
        if self._trace is not None:
            self._trace.close()
            self._trace = None

    def _require_watched_decoy(self) -> None:
        if self._decoy is not None and self._trace is None and not self._decoy.watched:
            raise InfrastructureError(
                "The decoy cannot be watched: this user has no inotify instance left, and the kernel gives no trace.\n"
                "Raise fs.inotify.max_user_instances and max_user_watches on this node, or set sandbox.decoy: false."
            )


def may_open_for_others(release: str = "") -> bool:
    """The kernel can answer another process's opening of a file with a descriptor: Linux 5.14."""
    numbers = re.match(r"(\d+)\.(\d+)", release or platform.release())
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= (5, 14)


def _idle_check() -> Callable[[str], bool]:
    """Whether nothing computes on a card, by the driver; always true where that does not tell."""

    def is_idle(uuid: str) -> bool:
        try:
            return Nvml().is_idle(uuid)
        except OSError:
            return True

    return is_idle


def _start_failure(image: Path, output: bytes) -> InfrastructureError:
    """Error for a runner, which starts before any code of the agent's, that never answered."""
    words = output.decode("utf-8", "replace")
    refused = os.geteuid() == 0 and "capability" in words
    remedy = (
        "This machine keeps capabilities from root that Apptainer wants: run as an ordinary user." if refused else ""
    )
    return InfrastructureError(
        f"The container of {image.name} could not be started: {launcher.last_words(output)}\n"
        + (remedy or remedies.remedy(words) or f"Try by hand, as this user: apptainer exec {image} true")
    )


PROBE_SECONDS = 60.0  # as much as a cold image may need
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_SHORTEST_SECRET = 8

# Runs inside; prints one JSON object. PATHS is replaced by host paths that must not exist. Python is isolated (-I -S),
# because the last check comes after the agent's calls, and start-up files of the workspace are the agent's.
PROBE = """
import ctypes, hashlib, json, os, resource, socket, sys, threading
sys.path.insert(0, "/run/hook")
sys.modules.pop("sitecustomize", None)
import sitecustomize
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
def opens(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True
def writes(folder):
    try:
        os.close(os.open(folder + "/.written", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return False
    return True
pids = [name for name in os.listdir("/proc") if name.isdigit()]
values = set()
for pid in pids:
    try:
        entries = open("/proc/" + pid + "/environ", "rb").read().split(b"\\0")
    except OSError:
        continue
    values.update(hashlib.sha256(entry.partition(b"=")[2]).hexdigest() for entry in entries)
thread = threading.Thread(target=int)
thread.start()
thread.join()
opens("/data/private/probe")
libc = ctypes.CDLL(None, use_errno=True)
print(json.dumps({
    "seccomp": status.get("Seccomp", "0").strip() == "2" and libc.unshare(0x10000000) == -1,
    "no_new_privs": status.get("NoNewPrivs", "0").strip() == "1",
    "capabilities": int(status.get("CapEff", "0"), 16),
    "processes": len(pids),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "opened": [path for path in PATHS if opens(path) or opens("/proc/1/root" + path)],
    "written": [place for place in ("/", "/usr", "/data", "/data/public", "/run/hook") if writes(place)],
    "values": sorted(values),
    "max_processes": resource.getrlimit(resource.RLIMIT_NPROC)[0],
    "may_open": [path for path in DEVICES if not os.statvfs(path).f_flag & os.ST_NODEV],
    "hook_in_place": os.environ.get("PYTHONPATH", "").startswith("/run/hook:"),
}))
"""


class ContainmentProbe(Model):
    """Report of the isolation probe from inside the container."""

    seccomp: bool
    no_new_privs: bool
    capabilities: int
    processes: int
    interfaces: list[str]
    opened: list[str]
    written: list[str]
    values: list[str]
    max_processes: int
    may_open: tuple[str, ...] = ()
    hook_in_place: bool


def probe_code(paths: Iterable[Path], devices: Iterable[Path] = ()) -> str:
    """Bash code that looks for these host paths, and for ``devices`` that can be opened, and reports as JSON."""
    code = PROBE.replace("PATHS", json.dumps([str(path) for path in paths]))
    code = code.replace("DEVICES", json.dumps([str(path) for path in devices]))
    return f"python3 -I -S - <<'PROBE'\n{code}PROBE\n"


def read_probe(output: bytes, messages: str = "") -> ContainmentProbe:
    """The probe's report; raises InfrastructureError when it is none."""
    try:
        return ContainmentProbe.model_validate_json(output)
    except ValueError as error:
        text = (messages.strip() or output.decode("utf-8", "replace"))[-200:]
        raise InfrastructureError(
            f"The isolation probe gave no report: {text!r}.\nCheck the agent image: it needs python3."
        ) from error


def find_leaks(probe: ContainmentProbe, *, sealed: bool, environment: Mapping[str, str]) -> list[str]:
    """Isolation failures in words; empty when the sandbox isolates."""
    secrets = {
        hashlib.sha256(value.encode()).hexdigest(): name
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_SECRET
    }
    found = [f"{path} of the host can be read" for path in probe.opened]
    found += [f"{place} can be written" for place in probe.written]
    found += [f"the variable {secrets[value]} is visible" for value in probe.values if value in secrets]
    if not probe.no_new_privs:
        found.append("processes may gain privileges")
    if probe.capabilities:
        found.append(f"processes hold capabilities ({probe.capabilities:x})")
    if sealed and set(probe.interfaces) - {"lo"}:
        found.append(f"there are network interfaces ({', '.join(probe.interfaces)})")
    if probe.processes > 4:  # the waiting shell, the probe, and what the runtime may add
        found.append(f"{probe.processes} processes are visible")
    return found


def require_isolation(probe: ContainmentProbe, *, sealed: bool) -> None:
    """Raise InfrastructureError when the probe found a leak."""
    found = find_leaks(probe, sealed=sealed, environment=os.environ)
    if found:
        raise InfrastructureError(
            f"The sandbox does not isolate on this machine: {'; '.join(found[:5])}.\n"
            "No agent was run. Check apptainer.conf with the site's administrators, and run `automedbench doctor`."
        )


WARNING = "The local sandbox isolates nothing: code can read and change all that this user can."


class LocalSandbox(Sandbox):
    """Runs code with this interpreter, a clean environment and the workspace as working directory; no container."""

    def __init__(
        self, *, public: Path, workspace: Path, limits: Limits | None = None, skills: Path | None = None
    ) -> None:
        self.data_dir = str(public.resolve())
        self._skills = str(skills.resolve()) if skills else None
        self.workspace_dir = str(workspace.resolve())
        self.enforced = Enforced(backend="local", network="open")
        self._limits = limits or Limits()
        self._findings = []  # without a mount namespace there is no place for a decoy

    def __enter__(self) -> LocalSandbox:
        logging.getLogger(__name__).warning(WARNING)
        stack = contextlib.ExitStack()
        self._scratch = stack.enter_context(scratch_folder("call-"))
        stack.callback(self.end)
        self._leave = stack.close
        return self

    def _start(self, tmp: Path) -> Supervised:
        repair_modes(Path(self.workspace_dir))
        box = Supervised(
            [sys.executable, "-I", "-S", str(launcher.RUNNER)],
            env=self._environment(str(tmp)),
            cwd=Path(self.workspace_dir),
            limits=default_limits(os.geteuid(), self._limits),
            guard=Guard([Path(self.workspace_dir), tmp], self._limits),
        )
        if box.wait_until_ready(START_SECONDS):
            return box
        box.close()
        raise InfrastructureError(f"The runner of the local sandbox could not be started: {box.last_words}")

    def _program(self, path: Path, language: Language) -> list[str]:
        return [sys.executable if language == "python" else "bash", str(path)]

    def _environment(self, tmp: str) -> dict[str, str]:
        binaries = os.pathsep.join([os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"])
        return {
            "PATH": binaries,
            "HOME": self.workspace_dir,
            **launcher.agent_environment(self.data_dir, self.workspace_dir, tmp, self._skills),
        }
