"""All probes of the doctor, in the order of its report."""

from __future__ import annotations

from automedbench.commands.doctor import campaign, containers, machine, raw
from automedbench.commands.doctor.examine import Probe

PROBES = (
    Probe("python", machine.python),
    Probe("git", machine.git),
    Probe("clock", machine.clock),
    Probe("limits", machine.limits),
    Probe("memory", machine.memory_limit),
    Probe("inotify", machine.inotify),
    Probe("/dev/shm", machine.shared_memory),
    Probe("disks", machine.disks),
    Probe("apptainer", containers.apptainer),
    Probe("user namespaces", containers.namespaces),
    Probe("images", containers.images, 30),
    Probe("isolation", containers.isolation, 45),
    Probe("proxied network", containers.proxied_network, 45),
    Probe("gpu", campaign.gpu),
    Probe("slurm", campaign.slurm),
    Probe("keys", campaign.keys),
    Probe("endpoints", campaign.endpoints, 20),
    Probe("raw data", raw.raw),
    Probe("data", campaign.data, 30),
    Probe("resources", campaign.resources),
)
