"""Agents with and without a method on small made-up tasks of every track, and the effect that is expected of each."""
