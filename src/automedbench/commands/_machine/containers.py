"""Probes of containers: Apptainer, images, GPUs, and what code inside a real agent container can do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedbench.agent.opening import EGRESS_LOG, open_egress
from automedbench.agent.plan import RunPlan
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.records import Enforced
from automedbench.commands._machine.examine import Host, ProbeResults, fail, ok, result_of_error, warn
from automedbench.commands._machine.host import run_program
from automedbench.sandbox.boxes import ApptainerSandbox
from automedbench.sandbox.container.gpus import list_cards, list_devices, select_visible
from automedbench.sandbox.container.image import image_record, record_beside
from automedbench.sandbox.container.layer import find_layer
from automedbench.sandbox.container.process import CodeResult
from automedbench.sandbox.egress import site_certificates

OLDEST = (1, 2)
"""First version of Apptainer with every option in use that works without root."""
INSTALL = "Load its module, or install it: containers/README.md; on Debian or Ubuntu as root: tests/setup/apptainer.sh"
BUILD = "Build it (`snakemake prepare`), then repeat."
AS_ROOT = "Containers need an ordinary user: run doctor and campaign as the user that Slurm or you use, not as root."

INSIDE = """
import json, os
open("/workspace/written", "w").close()
print("FOUND" + json.dumps([name for name in HOST_PATHS if os.path.exists(name)]))
"""


def apptainer(host: Host) -> ProbeResults:
    """Program and version."""
    if not host.image_names:
        return
    program = shutil.which("apptainer")
    if program is None:
        yield fail("apptainer", "is not installed (no 'apptainer' on PATH)", INSTALL)
        return
    status, text = run_program([program, "--version"])
    match = re.search(r"(\d+)\.(\d+)\S*", text)
    if status != 0 or match is None:
        yield fail("apptainer", f"{program} does not work: {text[:200]}", INSTALL)
    elif (int(match[1]), int(match[2])) < OLDEST:
        yield fail("apptainer", f"{match[0]} is too old", "Install version 1.2 or newer.")
    else:
        yield ok("apptainer", f"{match[0]} ({program})")


def images(host: Host) -> ProbeResults:
    """The images, and whether they are what their records tell."""
    if not host.image_names:
        yield ok("images", "none needed: the local sandbox is configured, which isolates nothing")
        return
    for name in host.image_names:
        image = host.images / f"{name}.sif"
        if not image.is_file():
            yield warn("images", f"{image} does not exist yet", BUILD)
        elif (inside := image_record(image) if shutil.which("apptainer") else None) and inside != record_beside(image):
            why = f"{image} is another image than {name}.json tells of, from which briefs are written"
            yield fail("images", why, f"Remove {name}.json, then `snakemake prepare`.")
        else:
            yield ok("images", f"{image}, {image.stat().st_size / 2**30:.1f} GiB")
    yield from _layers(host)


def _layers(host: Host) -> ProbeResults:
    """The layers of the campaign's command-line agents."""
    campaign = host.campaign
    for agent in campaign.takes_part if campaign else ():
        if campaign and (name := campaign.agents[agent].layer):
            try:
                layer = find_layer(host.images, name, record_beside(host.images / f"{campaign.flavour(agent)}.sif"))
            except MissingDataError as error:
                yield result_of_error("images", error, "warn")
            else:
                yield ok("images", f"{layer.path}, {name} {layer.record.version}, sha256 {layer.record.sha256[:16]}…")


def isolation(host: Host) -> ProbeResults:
    """Start an agent container with the flags of real runs, and look at what it sees of this machine.

    Network, privileges, processes, keys, what can be written and the filter of system calls are checked by the sandbox
    itself when it starts a container, and none starts where something leaks.
    """
    if shutil.which("apptainer") is None or not host.image_names:
        return
    if not host.agent_image.is_file():
        yield warn("isolation", "not tried: there is no agent image yet", BUILD)
        return
    found = run_inside(host, f"HOST_PATHS = {_host_paths(host)!r}\n{INSIDE}")
    visible = found.report()
    if visible is None:
        fix = f"Look by hand, as this user: apptainer exec {host.agent_image} python3 -V"
        yield fail("isolation", f"the probe inside did not finish: {found.last_words}", fix)
        return
    if visible:
        fix = "Compare apptainer.conf of this machine with docs/security.md; do not run agents like this."
        yield fail("isolation", f"an agent container sees {', '.join(visible)} of this machine", fix)
    else:
        yield ok("isolation", "no network, no capabilities, data and system read-only, nothing of the host visible")
    if os.geteuid() == 0:
        yield warn("isolation", "containers start, but as root", AS_ROOT)
    if found.enforced.seccomp:
        yield ok("seccomp", "a filter of system calls is in force")
    else:
        fix = "Use an Apptainer built with libseccomp (`apptainer buildcfg`), and a kernel with CONFIG_SECCOMP_FILTER."
        yield warn("seccomp", "no filter of system calls is in force", fix)


def _host_paths(host: Host) -> list[str]:
    """Places of this machine that no agent may see."""
    paths = [Path.home(), host.root.resolve(), host.results.resolve()]
    if host.campaign is not None:
        paths.append(Path(host.campaign.config.data.private).resolve())
    own = ("/", "/root", "/home", "/tmp", "/var/tmp", "/workspace")  # exist in any image
    return [str(path) for path in paths if path.exists() and str(path) not in own]


def gpu(host: Host) -> ProbeResults:
    """GPUs of this machine, how many runs can have one at a time, and whether the driver is ready for containers."""
    wanted = host.campaign.config.sandbox.gpu if host.campaign is not None else 0
    cards = select_visible(list_cards(), os.environ)
    if cards:
        names = ", ".join(f"{count} × {name}" for name, count in Counter(card.name for card in cards).items())
        yield ok("gpu", f"{names}; on this machine alone: --profile profiles/local --resources gpu={len(cards)}")
        try:
            list_devices(cards)
        except InfrastructureError as error:
            yield result_of_error("gpu", error, "FAIL" if wanted else "warn")
    elif wanted:
        fix = "Fine on a login node; on the node of runs install the driver or set sandbox.gpu: 0."
        yield warn("gpu", f"no GPU is seen here (nvidia-smi -L, /sys/class/kfd), but sandbox.gpu is {wanted}", fix)
    else:
        yield ok("gpu", "none here, none configured")


@dataclass(frozen=True)
class Inside:
    """What code in an agent container did, the limits enforced, and the requests in the log of its egress."""

    done: CodeResult
    enforced: Enforced
    requests: list[dict[str, Any]]

    def report(self) -> Any:
        """The JSON that the code printed after ``FOUND``; None without one."""
        _, mark, text = self.done.stdout.partition("FOUND")
        return json.loads(text) if mark else None

    @property
    def last_words(self) -> str:
        """The last line of what it complained of."""
        lines = self.done.stderr.strip().splitlines() or self.done.stdout.strip().splitlines()
        return f"{self.done.status}: {lines[-1][-300:] if lines else 'no output'}"


def run_inside(host: Host, code: str, *, plan: RunPlan | None = None, gpu: int = 0, timeout_s: float = 30) -> Inside:
    """Run Python code in a container with the flags of a run: sealed, or with the network of the run that is planned.

    Raises InfrastructureError where none starts.
    """
    with tempfile.TemporaryDirectory(prefix="sandbox-doctor-", ignore_cleanup_errors=True) as folder:
        public, workspace, log, services = (Path(folder, name) for name in ("public", "workspace", "log", "services"))
        for path in (public, workspace, log, services):
            path.mkdir()
        requests = log / EGRESS_LOG
        with contextlib.ExitStack() as stack:
            reached: dict[str, Any] = {}
            if plan is not None:
                egress = stack.enter_context(open_egress(plan, requests, services)) if plan.sandbox.has_egress else None
                own = site_certificates(services) if plan.sandbox.network == "open" else None
                reached = {"network": plan.sandbox.network, "egress": egress, "services": own}
            model = host.campaign.config.sandbox.gpu_model if host.campaign else None
            sandbox = ApptainerSandbox(
                image=host.agent_image, public=public, workspace=workspace, gpu=gpu, gpu_model=model, **reached
            )
            try:
                box = stack.enter_context(sandbox)
                done = box.run_code("python", code, call=1, turn=1, log=log, timeout_s=timeout_s)
            except InfrastructureError as error:
                if os.geteuid() != 0:
                    raise
                raise InfrastructureError(f"{str(error).splitlines()[0]}\n{AS_ROOT}") from error
        lines = requests.read_text("utf-8").splitlines() if requests.is_file() else []
        return Inside(done, sandbox.enforced, [json.loads(line) for line in lines])
