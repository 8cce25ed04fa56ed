"""Metrics: pure functions, arrays or strings in, numbers out. Nothing here knows files, cards or tracks."""
