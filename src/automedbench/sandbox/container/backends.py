"""Backends of the sandbox, chosen by their name in the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from automedbench.base.cards import Limits
from automedbench.base.errors import MissingDataError
from automedbench.sandbox import Sandbox
from automedbench.sandbox.container.apptainer import ApptainerSandbox
from automedbench.sandbox.container.launcher import Network, Services
from automedbench.sandbox.container.local import LocalSandbox
from automedbench.sandbox.evidence.decoy import Decoy


def make_sandbox(
    backend: Literal["apptainer", "local"],
    *,
    public: Path,
    workspace: Path,
    image: Path | None = None,
    network: Network = "sealed",
    gpu: bool = False,
    decoy: Decoy | None = None,
    limits: Limits | None = None,
    services: Services | None = None,
) -> Sandbox:
    """The sandbox of one attempt; ``local`` enforces nothing that is asked (see its ``enforced``).

    Raises MissingDataError when Apptainer, image or data are not there.
    """
    if backend == "local":
        return LocalSandbox(public=public, workspace=workspace, limits=limits)
    if image is None:
        raise MissingDataError("The apptainer sandbox needs a container image; build it with the rule build_image.")
    return ApptainerSandbox(
        image=image,
        public=public,
        workspace=workspace,
        network=network,
        gpu=gpu,
        decoy=decoy,
        limits=limits,
        services=services,
    )
