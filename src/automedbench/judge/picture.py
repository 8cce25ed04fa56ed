"""plan.png as a judge is shown it: from the collected submission, where the import role has written it anew."""

from __future__ import annotations

from pathlib import Path

from automedbench.base.errors import InfrastructureError, InvalidSubmission
from automedbench.base.files import read_record, sha256_bytes
from automedbench.base.records import SubmissionRecord
from automedbench.base.untrusted import read_bounded

NAME = "plan/plan.png"
MAX_BYTES = 20_000_000
TOKENS = 3_000
"""Room that is kept for one picture; providers count some 800 to 2 500 tokens for one of 1 280 pixels."""


def collected_plot(submission: Path) -> bytes | None:
    """The bytes of plan.png in a collected submission (folder ``submission``, record ``submission.json`` beside it).

    None when none was collected. Raises InfrastructureError when the file is not the one that was collected.
    """
    record = read_record(submission.with_name("submission.json"), SubmissionRecord)
    entry = record.extra.get(NAME)
    if entry is None:
        return None
    try:
        data = read_bounded(submission / NAME, MAX_BYTES)
    except InvalidSubmission as error:
        raise InfrastructureError(f"{submission / NAME} {error}.\nCollect the submission again.") from error
    if data is None or sha256_bytes(data) != entry.sha256:
        raise InfrastructureError(
            f"{submission / NAME} is not what was collected: its digest differs.\nCollect the submission again."
        )
    return data
