"""GPU memory and load of a run, sampled from outside by NVML."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from automedbench.base.records import GpuUse

PERIOD_S = 0.2
"""A program that fills a card and dies of it can last less than half a second."""
MIB = 2**20
TOO_SMALL = 7
"""NVML's answer where a list does not fit the place given to it: here, where it is not empty."""

Reading = Callable[[], tuple[int, float | None]]
"""Bytes in use on a card, and the share (0–1) of the last moment in which it computed; None: not known."""


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Load(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in ("gpu", "memory")]


class Nvml:
    """NVIDIA's library that looks at cards; raises OSError where there is none, and for what it does not answer."""

    def __init__(self, library: Any = None) -> None:
        self._library = library or ctypes.CDLL("libnvidia-ml.so.1")
        self._call("nvmlInit_v2")

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise OSError(f"{name} gives NVML error {code}")

    def handle(self, uuid: str) -> ctypes.c_void_p:
        """The card or slice with this UUID."""
        found = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(found))
        return found

    def is_idle(self, uuid: str) -> bool:
        """No process has a context on the card, not even one that was killed and still has its memory."""
        number = ctypes.c_uint()
        code = self._library.nvmlDeviceGetComputeRunningProcesses(self.handle(uuid), ctypes.byref(number), None)
        if code not in (0, TOO_SMALL):
            raise OSError(f"nvmlDeviceGetComputeRunningProcesses gives NVML error {code}")
        return code == 0 and not number.value

    def instances(self, uuid: str) -> tuple[int, int]:
        """Numbers of GPU instance and compute instance of a slice."""
        card, numbers = self.handle(uuid), (ctypes.c_uint(), ctypes.c_uint())
        self._call("nvmlDeviceGetGpuInstanceId", card, ctypes.byref(numbers[0]))
        self._call("nvmlDeviceGetComputeInstanceId", card, ctypes.byref(numbers[1]))
        return numbers[0].value, numbers[1].value

    def reading(self, uuid: str) -> Reading:
        """Reader of a card; the driver does not know the load of a slice (MIG)."""
        card, memory, load, known = self.handle(uuid), _Memory(), _Load(), False
        with contextlib.suppress(OSError):
            self._call("nvmlDeviceGetUtilizationRates", card, ctypes.byref(load))
            known = True

        def read() -> tuple[int, float | None]:
            self._call("nvmlDeviceGetMemoryInfo", card, ctypes.byref(memory))
            if known:
                self._call("nvmlDeviceGetUtilizationRates", card, ctypes.byref(load))
            return memory.used, load.gpu / 100 if known else None

        return read


class Meter:
    """Samples the cards of a run until ``close``. What was in use before the run is not its own.

    ``has_turn``: of shared cards, whether it is this run that holds them.
    """

    def __init__(
        self,
        readings: Sequence[Reading],
        clock: Callable[[], float] = time.monotonic,
        has_turn: Callable[[], bool] | None = None,
    ) -> None:
        self._readings, self._clock, self._has_turn = readings, clock, has_turn
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._last = clock()
        self._computed_at, self._idle_s = [self._last] * len(readings), 0.0
        self._before, load = self._bytes_and_load()
        self._peak, self._drained = 0, 0.0
        self.busy_s: float | None = None if load is None else 0.0
        """Seconds in which the cards computed, since the start; None: not measurable."""
        self._thread = threading.Thread(target=self._run, name="gpu-meter", daemon=True)

    @property
    def idle_s(self) -> float | None:
        """The longest time so far in which one of the cards did not compute, for any run; None: not measurable."""
        with self._lock:
            return None if self.busy_s is None else max(self._idle_s, self._clock() - min(self._computed_at))

    def start(self) -> Meter:
        """Begin to sample, in a thread of its own."""
        self._thread.start()
        return self

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def drain(self) -> GpuUse:
        """GPU usage since the last call of this method."""
        with self._lock:
            busy_s = None if self.busy_s is None else round(self.busy_s - self._drained, 1)
            used = GpuUse(peak_mib=self._peak // MIB, busy_s=busy_s)
            self._peak, self._drained = 0, self.busy_s or 0.0
        return used

    def sample(self) -> None:
        """Read the cards once; one that does not answer now is read again next time."""
        with contextlib.suppress(OSError, ValueError):
            used, load = self._bytes_and_load()
            with self._lock:
                passed, self._last = self._clock() - self._last, self._clock()
                if self._has_turn is not None:
                    self._before = min(self._before, used)  # another may have computed when this run began
                    if not self._has_turn():
                        return
                self._peak = max(self._peak, used - self._before)
                self.busy_s = None if load is None or self.busy_s is None else self.busy_s + load * passed

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_S):
            self.sample()

    def _bytes_and_load(self) -> tuple[int, float | None]:
        samples = [read() for read in self._readings]
        loads = [load for _, load in samples if load is not None]
        now = self._clock()
        self._idle_s = max(self._idle_s, now - min(self._computed_at))
        computed = [now if load else before for before, (_, load) in zip(self._computed_at, samples, strict=True)]
        self._computed_at = computed
        return sum(used for used, _ in samples), sum(loads) if len(loads) == len(samples) else None
