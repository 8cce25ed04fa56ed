"""The driver of a run: brief, chat model, loop, limits, log, lease and attempts.

The loop runs outside the sandbox and holds the keys; only the code that an agent writes runs inside. Imports cards,
records, errors, files and the sandbox interface; never a track or the judge.
"""
