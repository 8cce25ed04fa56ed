"""Requests and answers in the words of the other side: a program may speak another protocol than its endpoint.

Where both speak the same nothing is translated. Else LiteLLM does it, in a child (``translator``) that has neither our
environment nor a network, and ends with a text that drives it mad. Which providers want what is its business; what the
agent's entry says of every request, and what is refused, hold behind it as before it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from automedbench.agent.command.protocols import SPOKEN
from automedbench.agent.command.protocols.common import Call, ProgramRequest, Refused
from automedbench.agent.models.model import Reply
from automedbench.base.child import Child
from automedbench.base.endpoint.address import ProtocolName
from automedbench.base.errors import InfrastructureError
from automedbench.campaign.agents import Agent

WALL_S, START_S = 60.0, 180.0
"""Seconds that are waited for a translation, and for LiteLLM's start, on a machine however busy."""
MAX_ANSWER = 64 << 20
CHILD = Path(__file__).with_name("translator.py")
PLACE = Path(sys.prefix) / "translate"
"""Where LiteLLM is: apart from our own packages, of which it wants other versions."""
VARIABLES = {
    "HOME": "/nonexistent",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "CRITICAL",
    "LITELLM_MODE": "PRODUCTION",
}


@dataclass
class Translator:
    """What stands between the program and the endpoint of one run. One exchange at a time."""

    agent: Agent
    _child: Child | None = None
    _wait_s: float = START_S
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """End the child; a translation that it is at has no answer then."""
        if (child := self._child) is not None:
            child.process.kill()
            with self._lock:
                self._end()

    def prepare(self, spoken: ProtocolName) -> None:
        """Start the child for a program that speaks ``spoken``, while that starts too: it takes seconds.

        Raises InfrastructureError where the library is missing.
        """
        if problem := missing(spoken, self.agent.protocol):
            raise InfrastructureError(problem)
        if spoken != self.agent.protocol:
            with self._lock:
                self._child = self._child or _new_child()

    def upstream(self, request: ProgramRequest) -> dict[str, Any]:
        """The body that the agent's endpoint gets; raises Refused for one that cannot be translated.

        Raises InfrastructureError where the library is missing.
        """
        if problem := missing(request.protocol, self.agent.protocol):
            raise InfrastructureError(problem)
        agent, spoken = self.agent, SPOKEN[self.agent.protocol]
        if request.protocol != agent.protocol:
            way = {"from": request.protocol, "to": agent.protocol, "model": agent.model}
            asked = dict(request.fields)
            if request.protocol == "messages":
                asked["max_tokens"] = request.max_tokens or agent.max_tokens
            body = self._ask({"ask": way | {"body": asked}}, "body")
            there = spoken.read(Call(agent.protocol, model=agent.model), json.dumps(body).encode())
            spoken.refuse_outside(there.fields)
            request = replace(there, max_tokens=request.max_tokens)
        return spoken.upstream(agent, request)

    def answer(self, request: ProgramRequest, reply: Reply) -> dict[str, Any]:
        """The whole answer as the program gets it; raises Refused for one that cannot be translated."""
        if request.protocol != self.agent.protocol:
            reply = replace(reply, body=self._ask({"reply": dict(reply.body or {})}, "answer"))
        return SPOKEN[request.protocol].answer(request, reply)

    def _ask(self, message: dict[str, Any], wanted: str) -> dict[str, Any]:
        with self._lock:
            try:
                self._child = self._child or _new_child()
                told = dict(self._child.ask(message, self._wait_s))
                self._wait_s = WALL_S
            except (OSError, ValueError):
                self._end()
                told = {"problem": "the translation did not end"}
        if wanted not in told:
            problem = str(told.get("problem", "no request came of it"))
            raise Refused(400, "invalid_request_error", None, f"this cannot be translated: {problem}")
        return dict(told[wanted])

    def _end(self) -> None:
        if self._child is not None:
            with contextlib.suppress(OSError):
                self._child.end()
            self._child, self._wait_s = None, START_S


def _new_child() -> Child:
    return Child(["-S", str(CHILD), str(PLACE)], most=MAX_ANSWER, variables=VARIABLES)


def missing(spoken: ProtocolName, wanted: ProtocolName) -> str:
    """Why a program that speaks ``spoken`` cannot ask an endpoint that speaks ``wanted``; empty where it can."""
    if spoken == wanted or (PLACE / "litellm").is_dir():
        return ""
    return (
        f"The program speaks '{spoken}', the agent's endpoint '{wanted}', and what translates (LiteLLM) is missing.\n"
        f"Run `make setup-translate` (or: pip install --no-deps --target {PLACE} -r envs/translate.txt), or set "
        f"'protocol' and 'base_url' of an endpoint that speaks '{spoken}'."
    )
