"""What a language model is asked about one stage of one run."""

from __future__ import annotations

PROMPT_VERSION = 1
"""Raised when a prompt or the selection of evidence changes: cached answers of another version do not count."""
