"""Meter that charges for all of a request, as the most expensive provider might: no budget may count on less.

A token for each ``bytes_per_token`` of the body that came, all of them written to the cache for an hour; a fixed number
for each picture, document or recording; and as long a reply as was asked for, in all of its choices, with reasoning on
top. It reads bodies in its own way, not in that of the code that it tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from automedbench_rehearsal.model_server.wire import Usage

_MEDIA = re.compile(r'(?:base64,|"data": ")([A-Za-z0-9+/=]{64,})"')
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@dataclass
class TokenMeter:
    """Counts requests; ``unlimited`` is the reply to one without a limit, ``media`` what one of them costs."""

    bytes_per_token: float = 1
    media: int = 4_700
    unlimited: int = 20_000
    share: float = 1.0
    """Of the limit that a reply fills."""
    charged: list[Usage] = field(default_factory=list)
    """One entry per request, answered or not."""

    def charge(self, body: Mapping[str, Any]) -> Usage:
        """Charge for a request."""
        text = json.dumps(body, ensure_ascii=False)
        media = [found[1] for found in _MEDIA.finditer(text)]
        read = (len(text.encode()) - sum(map(len, media))) / self.bytes_per_token
        written = int(read) + self.media * len(media)
        usage = Usage(input=0, output=self._reply(body), cache_write=written, cache_write_1h=written)
        self.charged.append(usage)
        return usage

    def _reply(self, body: Mapping[str, Any]) -> int:
        config = body.get("generationConfig") or {}
        limits = [*map(body.get, _LIMITS), config.get("maxOutputTokens")]
        thoughts = (body.get("reasoning") or {}).get("max_tokens"), _thinking(config)
        choices = body.get("n"), config.get("candidateCount")
        longest = max(filter(None, limits), default=self.unlimited) + max(filter(None, thoughts), default=0)
        return int(max(filter(None, choices), default=1) * longest * self.share)


def _thinking(config: Mapping[str, Any]) -> Any:
    return (config.get("thinkingConfig") or {}).get("thinkingBudget")
