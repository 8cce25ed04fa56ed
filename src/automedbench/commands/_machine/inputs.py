"""Probes of what a campaign needs: keys, endpoints, raw and staged data, resources."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.base.endpoint.address import ProtocolName, api_root, credentials
from automedbench.base.endpoint.servers import parse_file_url, read_servers
from automedbench.base.errors import AutoMedBenchError, ConfigError, InfrastructureError
from automedbench.base.files import SHARES
from automedbench.base.keys import read_keys, shown_place
from automedbench.base.plaintable import counted
from automedbench.base.yamlfile import suggestion
from automedbench.campaign.agents import Agent, JudgeModel
from automedbench.campaign.load import Campaign
from automedbench.commands._machine.examine import (
    Host,
    HostProbe,
    ProbeResult,
    ProbeResults,
    examine,
    fail,
    ok,
    result_of_error,
    warn,
)
from automedbench.commands._machine.host import nearest_folder, read_folder
from automedbench.commands.tasks import way_to_data
from automedbench.judge.panel.member import response_format
from automedbench.planning.targets import is_staged_data_missing
from automedbench.steps.judge_answers import judge_model

ENDPOINT_S, CLIENT_S = 5.0, 290.0
"""For a list of models, and for all that a client is asked."""
STAGE = "Stage it: `snakemake prepare`."
READY = {
    "type": "object",
    "properties": {"ready": {"type": "boolean"}},
    "required": ["ready"],
    "additionalProperties": False,
}
"""Form of the answer that judges are asked for in a try."""


def keys(host: Host) -> ProbeResults:
    """A key for every agent and judge of the campaign; never its value."""
    for name, client in list_clients(host.campaign).items():
        where = client.api_key_env or client.api_key_file
        try:
            found = read_keys(client, os.environ)
        except AutoMedBenchError as error:
            yield result_of_error("keys", f"{name}: {error}")
        else:
            yield ok("keys", f"{name}: {where} holds {counted(len(found), 'key')}")


Ask = Callable[[str, Agent, str, str], ProbeResults]
"""What is asked of an endpoint: name of the client, its settings, base URL, key."""


def ask_each(
    host: Host, probe: str, clients: Mapping[str, Agent], ask: Ask, *, is_try: bool = True
) -> list[ProbeResult]:
    """What ``ask`` finds at every endpoint of some clients, side by side, and files that name none.

    A try that is not made for want of a key is a finding as well, or it would be kept as one that worked.
    """

    def look(name: str, client: Agent, _host: Host) -> ProbeResults:
        try:
            key = read_keys(client, os.environ)[0]
        except AutoMedBenchError as error:  # of looks, the probe 'keys' says so
            yield from [result_of_error(probe, f"{name}: {error}")] * is_try
            return
        try:
            urls = _list_urls(client)
        except ConfigError as error:
            yield fail(probe, f"{name}: {error}", "Correct the file: docs/serving.md.")
            return
        if not urls:
            fix = "Start one (docs/serving.md); runs wait for it for half an hour."
            find = fail if is_try else warn
            yield find(probe, f"{name}: no server stands in {parse_file_url(client.address)}", fix)
        for url in urls:
            yield from ask(name, client, url, key)

    probes = [HostProbe(probe, partial(look, *item), CLIENT_S) for item in clients.items()]
    return examine(host, probes, CLIENT_S)


def _list_urls(client: Agent) -> list[str]:
    """Base URLs of an endpoint: of its own servers, those that stand in their file."""
    path = parse_file_url(client.address)
    with contextlib.suppress(OSError):  # no such file yet
        return read_servers(path) if path else [client.address]
    return []


def name_place(name: str, client: Agent, url: str) -> str:
    """Name and place of an endpoint for messages, with the proxy that leads to it."""
    from automedbench.base.endpoint.http import describe_proxy

    return f"{name}: {shown_place(url)}{describe_proxy(client.address)}"


def name_listed(model: str, models: list[str]) -> str:
    """What to set instead of a model that an endpoint does not have."""
    listed = f"{', '.join(models[:LISTED])}{f' and {len(models) - LISTED} more' * (len(models) > LISTED)}"
    return f"Set 'model' to one that it lists: {listed}{suggestion(model, models)}."


LISTED = 5
"""Models of an endpoint that a message names."""
_ALL_MODELS: dict[ProtocolName, str] = {"messages": "?limit=1000", "gemini": "?pageSize=1000"}


def ask_for_models(client: Agent, base_url: str, key: str) -> tuple[int, bytes]:
    """Status and body of the protocol's list of models, as a run would ask: free everywhere, and refused without a
    valid key almost everywhere.

    Raises InfrastructureError when there is no answer in time, ConfigError when a proxy cannot be used; no text of
    theirs holds a key.
    """
    from automedbench.base.endpoint.http import FAILURES, EndpointHttp

    url = f"{api_root(base_url, client.protocol)}/models{_ALL_MODELS.get(client.protocol, '')}"
    try:
        with EndpointHttp(client.address) as http:
            return http.list_models(url, credentials(client.protocol, key), ENDPOINT_S)
    except (*FAILURES, ValueError) as error:
        raise InfrastructureError(f"{type(error).__name__} {str(error).replace(key, '[masked]')}".strip()) from None


def data(host: Host) -> ProbeResults:
    """Cases are staged, and answers are readable by their owner only."""
    if host.campaign is None:
        return
    settings = host.campaign.config.data
    tasks = host.campaign.tasks
    absent = [task for task in tasks if is_absent(host.campaign, task)]
    if absent:
        names = ", ".join(absent[:3]) + " …" * (len(absent) > 3)
        yield warn("data", f"{len(absent)} of {len(tasks)} tasks are not staged, or not any more: {names}", STAGE)
    if staged := len(tasks) - len(absent):
        yield ok("data", f"{staged} of {len(tasks)} tasks are staged")
    private, share = Path(settings.private), host.campaign.config.share
    yield from _check_access(private, "group" if share == "all" else share)
    for place in host.campaign.closed_folders:
        if place != private:
            yield from _check_access(place, share)


def _check_access(folder: Path, share: str) -> ProbeResults:
    """A folder is readable by those that ``share`` names."""
    if not os.path.isdir(folder):
        return
    mode, owner = stat.S_IMODE(folder.stat().st_mode), folder.stat().st_uid
    if mode & SHARES[share] & 0o077:
        fix = f"chmod {0o777 & ~SHARES[share]:o} {folder}"
        yield fail("data", f"{folder} may be read by others (mode {mode:04o}, share: {share})", fix)
    elif owner not in (os.geteuid(), 0):
        yield warn("data", f"{folder} belongs to another user ({owner})", "Scoring needs to read it.")
    else:
        yield ok("data", f"{folder} is closed to other users")


def is_absent(campaign: Campaign, task: str) -> bool:
    """Check whether `snakemake` would stage a task."""
    there = os.path.isfile(Path(campaign.config.data.manifests, f"{task}.json"))
    return not there or is_staged_data_missing(campaign, task)


def resources(host: Host) -> ProbeResults:
    """Checkpoints and word lists are where the configuration says."""
    if host.campaign is None or not host.campaign.config.resources:
        return
    absent = {name: path for name, path in host.campaign.config.resources.items() if not Path(path).exists()}
    for name, path in absent.items():
        yield fail("resources", f"{name}: nothing is at {path}", "See docs/data.md for how to get it.")
    if not absent:
        yield ok("resources", f"{', '.join(host.campaign.config.resources)} are there")


def list_clients(campaign: Campaign | None) -> dict[str, Agent]:
    """Agents of the campaign that ask an endpoint, and its judges as agents that ask like them."""
    return list_models(campaign) | list_judges(campaign)


def list_models(campaign: Campaign | None) -> dict[str, Agent]:
    """Agents of the campaign that ask an endpoint."""
    names = campaign.takes_part if campaign else ()
    return {name: agent for name in names if campaign and (agent := campaign.agents[name]).paid}


def list_judges(campaign: Campaign | None) -> dict[str, Agent]:
    """Judges of the campaign, as agents that ask like them."""
    if campaign is None:
        return {}
    own = campaign.config.answer_judge
    judges = {f"judge {name}": judge for name, judge in campaign.judges.items()}
    judges |= {"answer_judge": judge_model(own)} if own else {}
    return {name: _judge_as_agent(judge) for name, judge in judges.items()}


def _judge_as_agent(judge: JudgeModel) -> Agent:
    settings = judge.model_dump(exclude={"structured", "images"}, exclude_none=True)
    extra = response_format(judge, READY) | judge.extra_body
    own = {"provider": "openai", "native_tools": False, "temperature": judge.temperature, "extra_body": extra}
    return Agent.model_validate(settings | own)


UNPACKED = 2.0
"""Room per byte of a download, for archives and what becomes of them."""


def raw(host: Host) -> ProbeResults:
    """This campaign's data sets are there, no fixtures, or can be fetched: own folders, variables, room on disks."""
    if host.campaign is None or host.campaign.config.fixtures:
        return
    settings, found = host.campaign.config, [host.campaign.cards[task] for task in host.campaign.tasks]
    cards = {card.dataset.name: card for card in found}
    ways = {name: way_to_data(host.campaign, card) for name, card in cards.items()}
    for name, way in ways.items():
        folder = Path(settings.data.raw, name)
        own = Path(settings.datasets[name].path) if name in settings.datasets and way == "own copy" else None
        if way == "made up":
            problem = f"{folder} holds made-up data, as its receipt says: a rehearsal's, not {name}"
            yield fail("raw data", problem, "Delete this folder; `snakemake prepare` then fetches the data.")
        elif own is not None and not own.is_dir():
            yield fail("raw data", f"{own} is not a folder", f"Change datasets.{name}.path, or remove it.")
        elif way == "by hand" or way.startswith("set "):
            fix = "See `automedbench tasks show <task>` and docs/data.md."
            yield warn("raw data", f"{name} does not exist: {way}", fix)
        elif way == "download" and settings.fetch.offline:
            yield warn("raw data", f"{name} does not exist, and fetch.offline is true", "Copy data.raw from elsewhere.")
    if "fetched" in ways.values():
        yield ok("raw data", f"{list(ways.values()).count('fetched')} of {len(ways)} data sets are there")
    yield from _check_room(
        nearest_folder(Path(settings.data.raw)), [cards[name] for name, way in ways.items() if way == "download"]
    )


def _check_room(folder: Path, cards: list[TaskCard]) -> ProbeResults:
    """Disk space for what is still to be downloaded."""
    needed = UNPACKED * sum(card.dataset.download_gb or 0.0 for card in cards)
    free = read_folder(folder).free_bytes / 1e9
    need = f"{counted(len(cards), 'data set')} to be fetched may need {max(1, needed):.0f} GB"
    text = f"{need}; {folder} has {free:.0f} GB free"
    if needed > free:
        yield warn("raw data", text, "Set data.raw to a larger disk, or fetch fewer tasks at a time.")
    elif cards:
        yield ok("raw data", text)
