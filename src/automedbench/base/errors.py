"""The exceptions of the project.

    AutoMedBenchError            a message for a person: what failed, why, what to do next
    ├── ConfigError              config, agent or card is wrong: nothing is started
    ├── InfrastructureError      the machine failed, not the agent: the job fails and can be repeated
    │   └── MissingDataError     data, image or tool does not exist: says how to get it
    ├── JudgeError               no valid judgement: the judge job fails, never a number
    └── InvalidSubmission        an agent's file is malformed: becomes a reason in submission.json, never stops a job

Any other exception is a bug of ours and stops the job with its traceback.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

MACHINE_FAULTS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE}
    | {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""Errors of disk, permissions and memory: no bug of ours, so they get a message and no traceback."""


def is_machine_fault(error: BaseException) -> bool:
    """True for an operating system's error that is the machine's."""
    return isinstance(error, OSError) and error.errno in MACHINE_FAULTS


class AutoMedBenchError(Exception):
    """Base of all errors whose message is meant for the user (at most three lines)."""


class ConfigError(AutoMedBenchError):
    """Configuration, agent list or task card is wrong; ``problems`` holds one ``file: key: message`` each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class InfrastructureError(AutoMedBenchError):
    """The machine failed (container, endpoint, disk, node); no agent is blamed and the job may be repeated."""


class MissingDataError(InfrastructureError):
    """Something that must be fetched or installed first is not there."""


class JudgeError(AutoMedBenchError):
    """No valid judgement could be had; a missing judgement is never a number."""


class InvalidSubmission(AutoMedBenchError):
    """A collected file breaks the output contract; ``code`` is stable, the message says why."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)
