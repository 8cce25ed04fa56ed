"""The table of probes: `doctor` runs those that look, `first-run` those that try as well."""

from __future__ import annotations

from automedbench.commands._machine import containers, inputs, local
from automedbench.commands._machine.examine import HostProbe
from automedbench.commands._machine.first import inside, jobs, models, servers

PROBES = (
    HostProbe("python", local.python),
    HostProbe("clock", local.clock),
    HostProbe("limits", local.limits),
    HostProbe("memory", local.memory_limit),
    HostProbe("trace", local.trace),
    HostProbe("disks", local.disks),
    HostProbe("files", local.room, 20),
    HostProbe("apptainer", containers.apptainer),
    HostProbe("images", containers.images, 30),
    HostProbe("isolation", containers.isolation, 45),
    HostProbe("gpu", containers.gpu),
    HostProbe("slurm", jobs.slurm, 40),
    HostProbe("keys", inputs.keys),
    HostProbe("endpoints", models.endpoints, 20, first_run=False),
    HostProbe("raw data", inputs.raw),
    HostProbe("data", inputs.data, 30),
    HostProbe("resources", inputs.resources),
    HostProbe("hosts", servers.hosts, 240, doctor=False),
    HostProbe(
        "models", models.models, 300, doctor=False, usd=lambda host: models.sum_costs(inputs.list_models(host.campaign))
    ),
    HostProbe(
        "judges", models.judges, 300, doctor=False, usd=lambda host: models.sum_costs(inputs.list_judges(host.campaign))
    ),
    HostProbe("packages", jobs.OnNode("packages", inside.packages, inside.uses_network), 600, doctor=False),
    HostProbe("kernel", jobs.OnNode("kernel", inside.kernel, inside.uses_gpus), 600, doctor=False),
    HostProbe("case", inside.case, 480, doctor=False),
    HostProbe("jobs", jobs.jobs, 600, doctor=False),
    HostProbe("shared folder", jobs.shared_folder, 600, doctor=False),
)
"""In the order of the report."""
