"""Surroundings of an attempt's code: its sandbox with the decoy, and what it may talk to.

Services of the driver's (egress proxy, model bridge) are UNIX sockets in one folder with a short name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from automedbench.agent.durable.attempts import AttemptFolder
from automedbench.agent.log import RunLog
from automedbench.agent.plan import RunPlan
from automedbench.base.errors import MissingDataError
from automedbench.base.files import read_record
from automedbench.base.records import Enforced, Finding, Language, Manifest, Receipt
from automedbench.sandbox import CodeResult, Sandbox
from automedbench.sandbox.container.backends import make_sandbox
from automedbench.sandbox.container.launcher import Services
from automedbench.sandbox.container.scratch import make_scratch, remove_scratch
from automedbench.sandbox.evidence.decoy import Decoy

if TYPE_CHECKING:
    from automedbench.sandbox.egress import Egress

EGRESS_LOG = "egress.jsonl"


@contextlib.contextmanager
def services_folder() -> Iterator[Path]:
    """A private folder for sockets; it is gone when this process is, however it ends."""
    folder = make_scratch("s-")
    try:
        yield folder
    finally:
        remove_scratch(folder)


@contextlib.contextmanager
def open_sandbox(
    plan: RunPlan, attempt: AttemptFolder, log: RunLog, folder: Path, services: Services | None = None
) -> Iterator[Sandbox]:
    """The sandbox of an attempt. ``folder`` is that of the services; ``services`` are offered beside the egress.

    Raises MissingDataError when data, image or container runtime are not there.
    """
    public = plan.public / plan.card.id
    if not public.is_dir():
        raise MissingDataError(f"No staged data in {public}.\nRun `snakemake prepare` (or the rule stage_task) first.")
    isolated = plan.sandbox.backend == "apptainer"
    with contextlib.ExitStack() as stack:
        decoy = egress = None
        if plan.sandbox.decoy and isolated:
            layout, cases = _private_layout(plan.manifest), plan.manifest.case_ids
            decoy = stack.enter_context(Decoy(layout, cases, marker=log.first("decoy").get("marker")))
            log.event("decoy", marker=decoy.marker)
        if plan.sandbox.network == "proxied" and isolated:
            egress = stack.enter_context(_open_egress(plan, attempt.log / EGRESS_LOG, folder))
            services = egress.services if services is None else egress.services + services
        sandbox = make_sandbox(
            plan.sandbox.backend,
            public=public,
            workspace=attempt.workspace,
            image=plan.image,
            network=plan.sandbox.network,
            gpu=plan.sandbox.gpu,
            decoy=decoy,
            limits=plan.limits,
            services=services,
        )
        entered = stack.enter_context(sandbox)
        yield entered if egress is None else _WithEgress(entered, egress)


def _open_egress(plan: RunPlan, log: Path, folder: Path) -> Egress:
    from automedbench.sandbox.egress import Egress
    from automedbench.sandbox.egress.settings import label_hashes, read_index, settings_for

    config = plan.sandbox.egress
    settings = settings_for(
        plan.card,
        plan.cards,
        allow=config.allow,
        deny=config.deny,
        hub=config.hub,
        index=read_index(),
        hashes=label_hashes(plan.manifest, _receipt(plan)),
    )
    return Egress(settings, log, folder)


def _receipt(plan: RunPlan) -> Receipt | None:
    """What the raw data of the task is, where it was fetched on this machine."""
    path = plan.raw / plan.card.dataset.name / "receipt.json" if plan.raw is not None else None
    return read_record(path, Receipt) if path is not None and path.is_file() else None


class _WithEgress:
    """A sandbox whose findings are joined by those of the egress."""

    def __init__(self, sandbox: Sandbox, egress: Egress) -> None:
        self._sandbox, self._egress = sandbox, egress
        self._findings: list[Finding] = []
        self.data_dir, self.workspace_dir = sandbox.data_dir, sandbox.workspace_dir
        self.enforced: Enforced = sandbox.enforced.model_copy(update={"egress_sha256": egress.digest})

    def __enter__(self) -> _WithEgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Both are left by the thread that entered them."""

    def run_code(self, language: Language, code: str, *, call: int, turn: int, **options: Any) -> CodeResult:
        """See ``Sandbox.run_code``; requests are booked on this call."""
        self._egress.set_call(turn, call)
        try:
            return self._sandbox.run_code(language, code, call=call, turn=turn, **options)
        finally:
            self._findings += self._egress.drain(turn=turn, call=call)

    def selfcheck(self) -> None:
        """See ``Sandbox.selfcheck``."""
        self._sandbox.selfcheck()

    def drain_findings(self) -> list[Finding]:
        """See ``Sandbox.drain_findings``."""
        drained, self._findings = self._findings, []
        return [*self._sandbox.drain_findings(), *drained]


def _private_layout(manifest: Manifest) -> list[str]:
    """Names of the private files, so that the decoy looks like what it stands for; the manifest holds no more."""
    names = sorted({name for case in manifest.cases for name in case.private})
    return [f"{{case}}/{name}" for name in names]
