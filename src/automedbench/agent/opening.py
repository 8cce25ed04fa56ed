"""Resources of an attempt: its chat model, its sandbox, and the sandbox's egress.

Services of the driver's that an attempt's code may talk to (egress proxy, model bridge) are UNIX sockets in one folder
with a short name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from automedbench.agent.durable.attempts import AttemptFolder
from automedbench.agent.log import RunLog
from automedbench.agent.models.model import ChatModel
from automedbench.agent.plan import RunPlan, make_egress_settings
from automedbench.base.endpoint.client import Attempt
from automedbench.base.files import read_record
from automedbench.base.keys import read_keys
from automedbench.base.records import Receipt
from automedbench.sandbox.boxes import ApptainerSandbox, LocalSandbox, Sandbox
from automedbench.sandbox.evidence.decoy import Decoy
from automedbench.sandbox.places import Services

if TYPE_CHECKING:
    from automedbench.sandbox.egress import Egress

EGRESS_LOG = "egress.jsonl"

OpenModel = Callable[
    [RunPlan, tuple[str, ...], Callable[[], None], Callable[[Attempt], None], Callable[[float], None]],
    AbstractContextManager[ChatModel],
]
"""Makes the chat model of an attempt; see :func:`open_model`."""

OpenSandbox = Callable[[RunPlan, AttemptFolder, RunLog, Path, Services | None], AbstractContextManager[Sandbox]]
"""Makes the sandbox of an attempt; see :func:`open_sandbox`."""


def log_attempt(log: RunLog, attempt: Attempt) -> None:
    """Append the event of an attempt at a request."""
    log.event(
        "api_attempt",
        **{"class": attempt.kind},
        status=attempt.status,
        turn_s=round(attempt.turn_s, 3),
        wait_s=round(attempt.wait_s, 3),
        elapsed_s=round(attempt.elapsed_s, 3),
        body=attempt.body,
        key=attempt.key,
    )


def open_model(
    plan: RunPlan,
    keys: tuple[str, ...],
    on_send: Callable[[], None],
    on_attempt: Callable[[Attempt], None],
    sleep: Callable[[float], None],
) -> AbstractContextManager[ChatModel]:
    """Open the model by its provider; heavy parts are loaded by whom they serve.

    ``on_send`` is called before and ``on_attempt`` after each attempt at a request, ``sleep`` to wait for the endpoint.
    """
    agent = plan.agent
    match agent.provider:
        case "scripted":
            from automedbench.agent.models.scripted import load_script

            return contextlib.nullcontext(load_script(Path(agent.script or "")))
        case "baseline":
            from automedbench.agent.models.scripted import load_baseline

            return contextlib.nullcontext(load_baseline(agent, plan.card))
        case "replay":
            from automedbench.agent.models.replay import load_replay

            return contextlib.nullcontext(load_replay(agent))
        case "openai" | "command":
            from automedbench.agent.models.endpoint import EndpointModel

            shared = plan.results / "endpoints" if plan.results else None
            return EndpointModel(
                agent,
                keys,
                on_send=on_send,
                on_attempt=on_attempt,
                shared=shared,
                asker=plan.run.path,
                sleep=sleep,
                slow=plan.fault is not None and plan.fault.name == "slow-endpoint",
            )


@contextlib.contextmanager
def open_sandbox(
    plan: RunPlan, attempt: AttemptFolder, log: RunLog, folder: Path, services: Services | None = None
) -> Iterator[Sandbox]:
    """The sandbox of an attempt. ``folder`` is that of the services; ``services`` are offered beside the egress.

    Raises MissingDataError when data, image or container runtime are not there.
    """
    public = plan.public / plan.card.id
    plan.manifest.require("inputs", public)
    with contextlib.ExitStack() as stack:
        if plan.fault is not None:
            public = stack.enter_context(plan.fault.change_inputs(public, attempt.path / "inputs"))
        if plan.sandbox.backend == "local":
            yield stack.enter_context(
                LocalSandbox(public=public, workspace=attempt.workspace, limits=plan.limits, skills=plan.skills)
            )
            return
        decoy = egress = None
        if plan.sandbox.decoy:
            # Names of the private files, so that the decoy looks like what it stands for; the manifest holds no more.
            layout = sorted({f"{{case}}/{name}" for case in plan.manifest.cases for name in case.private})
            decoy = stack.enter_context(Decoy(layout, plan.manifest.case_ids, marker=log.first("decoy").get("marker")))
            log.event("decoy", marker=decoy.marker)
        if plan.sandbox.has_egress:
            egress = stack.enter_context(open_egress(plan, attempt.log / EGRESS_LOG, folder))
        if plan.sandbox.network == "open":
            from automedbench.sandbox.egress import site_certificates

            certificates = site_certificates(folder)
            services = certificates + services if certificates and services else certificates or services
        sandbox = ApptainerSandbox(
            public=public,
            workspace=attempt.workspace,
            image=plan.image,
            network=plan.sandbox.network,
            gpu=plan.sandbox.gpu,
            gpu_model=plan.sandbox.gpu_model,
            gpu_share=plan.sandbox.gpu_share,
            gpu_lease_s=plan.sandbox.gpu_lease_s,
            decoy=decoy,
            limits=plan.limits,
            services=services,
            layer=plan.layer,
            egress=egress,
            skills=plan.skills,
            used=any(log.exec_folder.iterdir()),
        )
        yield stack.enter_context(sandbox)


def open_egress(plan: RunPlan, log: Path, folder: Path) -> Egress:
    """The egress of a run, which the caller closes; ``log`` is the file of its requests, ``folder`` of its sockets.

    Raises InfrastructureError when the configured package index refuses or cannot be reached.
    """
    from automedbench.sandbox.egress import Egress
    from automedbench.sandbox.egress.rules import label_hashes, read_index

    index = read_index(ask=not plan.sandbox.egress.offline)
    settings = make_egress_settings(plan, index=index, hashes=label_hashes(plan.manifest, _receipt(plan)))
    tokens = {name.lower(): read_keys(each)[0] for each in plan.sandbox.egress.tokens for name in each.models}
    fault = plan.fault.network if plan.fault else None
    return Egress(settings, log, folder, tokens=tokens, cache=plan.sandbox.egress.cache_place, fault=fault)


def _receipt(plan: RunPlan) -> Receipt | None:
    """Receipt of the task's raw data, where it was fetched on this machine."""
    path = plan.raw / plan.card.dataset.name / "receipt.json" if plan.raw is not None else None
    return read_record(path, Receipt) if path is not None and path.is_file() else None
