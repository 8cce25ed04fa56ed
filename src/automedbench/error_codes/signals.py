"""E3 by what a track's own records say: the signals of the run's track, each of them a detector."""

from __future__ import annotations

from automedbench.error_codes.facts import Detector, Found, RunFacts
from automedbench.tracks import Signal, get_track


def detectors_of(track: str) -> list[Detector]:
    """One detector for each signal of a track; raises ConfigError for an unknown one."""
    return [_detector(signal, track) for signal in get_track(track).signals]


def _detector(signal: Signal, track: str) -> Detector:
    def find(facts: RunFacts) -> Found | None:
        evidence = signal.find(facts)
        return None if evidence is None else Found("S4", evidence)

    return Detector(signal.id, "E3", signal.looks_at, find, track)
