"""Conditions: all that a score depends on, in one table; its short signature; which differences matter, and why.

Two scores with the same signature were made under the same conditions. It leaves out what is the agent's own, which is
what a benchmark compares, but rows of one agent are checked for that too. Pure: reads and writes no file.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from automedbench.base.errors import ConfigError
from automedbench.base.files import hash_json
from automedbench.base.records import ScoreRecord
from automedbench.tracks import settings_that_count

Effect = Literal["changes the score", "may change the score", "does not change the score"]
CHANGES: Effect = "changes the score"
MAY: Effect = "may change the score"
NOT: Effect = "does not change the score"
FORM = "v1"
"""Version of the signature's form: another one cannot be compared with this."""
UNKNOWN, NOTHING = "?", ""
"""In a signature: not known, and a value that does not apply (left out). Neither is held against another value."""
SITE = "site"
PUBLISHED = "published"
_SPENDING = ("max_total_tokens", "max_cost_usd")
_CUT = 8
_BREAKS = re.compile(r"[|\s\x00-\x1f\x7f]+")
_EACH, _AGENT, _TASK = ("agent", "task", "tier"), ("agent",), ("task",)


@dataclass(frozen=True)
class Condition:
    """Something that a score depends on.

    It must be the same for all runs that are alike in ``same_for`` (fields of RunId). ``key``: where the signature says
    it; empty: it does not. ``value`` is None where it is not known, NOTHING where it does not apply.
    """

    name: str
    key: str
    meaning: str
    effect: Effect
    why: str
    value: Callable[[ScoreRecord], object]
    same_for: tuple[str, ...] = ()
    to_text: Callable[[Any], str] = str

    def text(self, found: object) -> str:
        """A value as the signature says it, without what would end it there."""
        return UNKNOWN if found is None else _BREAKS.sub("_", self.to_text(found))


def judge_class(score: ScoreRecord) -> str:
    """Judge of the run, for example ``heuristic (heuristic-1)``."""
    return f"{score.recipe.judge_kind} ({score.recipe.judge})"


def is_judged_by(score: ScoreRecord, model: str) -> bool:
    """Check whether one model alone judged the run, by any provider and of any date; ``model``: its id without them."""
    own_id = re.compile(rf"(?:^|[^a-z0-9]){re.escape(model)}(?:$|-\d{{8}}(?!\d)|[^a-z0-9.-])")
    panel = score.recipe.panel
    return bool(panel) and all(own_id.search(str(member.settings.get("model", "")).lower()) for member in panel)


def draw_name(seed: int | None) -> str:
    """Draw of the runs' cases: ``published``, or ``fresh (seed 7)``."""
    return PUBLISHED if seed is None else f"fresh (seed {seed})"


def _hash(value: object) -> str:
    """``hash_json``, once for what many runs have in common."""
    return _hash_text(json.dumps(value))


@functools.lru_cache(1000)
def _hash_text(text: str) -> str:
    return hash_json(json.loads(text))


@functools.lru_cache(1000)
def _hash_settings(track: str, recorded: str) -> str:
    return hash_json(settings_that_count(track, json.loads(recorded)))


def _cut(digest: str) -> str:
    return digest[:_CUT]


def _panel(score: ScoreRecord) -> str:
    recipe = score.recipe
    if recipe.judge_kind == "heuristic":
        return NOTHING
    return f"{recipe.prompt_version}.{_cut(_hash([member.digest for member in recipe.panel]))}"


def _limits(score: ScoreRecord) -> str:
    kept = score.recipe.limits
    return _hash({name: kept[name] for name in kept if name not in _SPENDING})


def _spending(score: ScoreRecord) -> str:
    """Spending limits of a run; NOTHING without a limit, as for agents without cost."""
    found = {name: score.recipe.limits.get(name) for name in _SPENDING}
    return _hash(found) if any(found.values()) else NOTHING


def _enforcement(score: ScoreRecord) -> str:
    box = score.enforced
    return _hash([box.limits, box.memory_bytes, box.max_processes])


def _lists(score: ScoreRecord) -> str | None:
    box = score.enforced
    return box.egress_sha256 if box.network == "proxied" or box.from_cache else NOTHING


def _evidence(score: ScoreRecord) -> str:
    box = score.enforced
    return _hash([box.decoy, box.tripwire, box.trace, box.seccomp, box.hook, box.selfcheck])


def _hardware(score: ScoreRecord) -> str:
    used = score.used
    recorded = [sorted(names) for names in (used.machines, used.gpu_models, used.gpu_drivers, score.enforced.gpu_names)]
    return _hash(recorded)


def _commit(score: ScoreRecord) -> str | None:
    code = score.recipe.code
    return f"{code.commit}{' with changes' if code.dirty else ''}" if code.commit else None


CONDITIONS: tuple[Condition, ...] = (
    Condition(
        "preset", "preset", "named setting of the campaign", CHANGES,
        "tasks, counts, metrics and gates are the preset's; rows of different presets never rank together",
        lambda score: score.recipe.preset,
    ),
    Condition(
        "task version", "task", "task and version of its card", CHANGES, "other work, or other answers",
        lambda score: f"{score.run.task}.{score.recipe.task_version}", _TASK,
    ),
    Condition(
        "tier", "tier", "what the brief gives away", CHANGES, "lite names the method, standard gives hints",
        lambda score: score.run.tier, ("tier",),
    ),
    Condition(
        "cases", "cases", "digest of the staged cases", CHANGES, "other cases are easier or harder",
        lambda score: score.recipe.cases_sha256, _TASK, _cut,
    ),
    Condition(
        "draw", "cases", "the published draw (not said), or the seed of a fresh one", CHANGES,
        "published cases may have been seen before", lambda score: draw_name(score.recipe.draw),
        to_text=lambda name: NOTHING if name == PUBLISHED else name.replace("fresh (seed ", "draw").rstrip(")"),
    ),
    Condition(
        "track version", "track", "track and version of its scorer", CHANGES, "the same outputs get other numbers",
        lambda score: f"{score.track}.{score.recipe.track_version}", _TASK,
    ),
    Condition(
        "metric settings", "track", "digest of the metric's settings other than its defaults", CHANGES,
        "the same outputs get other numbers",
        lambda score: _hash_settings(score.track, json.dumps(score.recipe.settings)), _TASK, _cut,
    ),
    Condition(
        "rubric version", "rubric", "version of the rubric of S1 to S3", CHANGES, "the same work earns other stages",
        lambda score: score.recipe.rubric_version, _TASK,
    ),
    Condition(
        "judge", "judge", "who judged S1 to S3", CHANGES, "judges differ by more than agents do",
        judge_class, to_text=lambda name: name.partition(" (")[2].removesuffix(")"),
    ),
    Condition(
        "panel", "judge", "version of the panel's prompt, digest of its members' settings (not said of rules)", CHANGES,
        "another model or another question under the same name", _panel,
    ),
    Condition(
        "audit policy", "audit", "version of the audit's rules", CHANGES, "a disqualified run counts 0",
        lambda score: score.recipe.policy_version,
    ),
    Condition(
        "score version", "score", "version of how a run's numbers are put together", CHANGES,
        "the same records give other numbers", lambda score: score.recipe.score_version,
    ),
    Condition(
        "effects", "score", "whether outputs without an effect of their case lower the stages (not said), or are only "
        "shown", CHANGES, "of two runs with the same outputs one loses up to three stages",
        lambda score: score.recipe.effects, to_text=lambda rule: NOTHING if rule == "counted" else rule,
    ),
    Condition(
        "sandbox", "box", "what isolated the runs, and the network class", CHANGES,
        "what can be downloaded or looked up decides what can be done", lambda score: score.enforced.isolation,
        to_text=lambda name: name.replace(" with ", "+"),
    ),
    Condition(
        "GPU", "gpu", "whether the runs had GPUs", CHANGES, "methods that need one, and a criterion of S2",
        lambda score: "yes" if score.enforced.gpu else "no",
    ),
    Condition(
        "GPU share", "gpu", "runs that had the same GPUs in turn (1 is not said)", MAY,
        "background work is ended when it keeps a shared GPU for long", lambda score: score.enforced.gpu_share,
        to_text=lambda runs: NOTHING if runs == 1 else f"shared{runs}",
    ),
    Condition(
        "image flavour", "image", "name of the image that the agent works in", NOT, "the name alone decides nothing",
        lambda score: score.recipe.image_flavour or (NOTHING if score.enforced.backend == "local" else None),
    ),
    Condition(
        "image", "image", "digest of what it is made from", MAY, "other packages and tools are there from the start",
        lambda score: score.recipe.image_recipe or (NOTHING if score.enforced.backend == "local" else None),
        to_text=_cut,
    ),
    Condition(
        "brief", "brief", "digest of the brief without what is an agent's own", MAY, "agents are told something else",
        lambda score: score.recipe.common_brief_sha256, ("task", "tier"), _cut,
    ),
    Condition(
        "limits", "limits", "digest of the limits of time, turns, memory, disk and processes", MAY,
        "with more of it more can be done", _limits, _TASK, _cut,
    ),
    Condition(
        "spending limits", "limits", "digest of the limits of tokens and cost (not said where there are none)", MAY,
        "with more of it more can be done", _spending, _TASK, _cut,
    ),
    Condition(
        "keeping of limits", SITE, "whether a cgroup kept memory and processes, and how much of them", MAY,
        "limits that are only looked at are kept less exactly", _enforcement, _TASK, _cut,
    ),
    Condition(
        "egress lists", SITE, "digest of the lists of what can be reached", MAY,
        "another place can be reached, or another cannot", _lists, _TASK, _cut,
    ),
    Condition(
        "evidence", SITE, "what watched the runs: decoy, tripwire, trace, filter, hook, self-check", MAY,
        "a violation that is not seen takes no score away", _evidence, to_text=_cut,
    ),
    Condition(
        "hardware", SITE, "processors, memory, GPUs and their driver", MAY,
        "a slower machine gets less done within the limit of time", _hardware, to_text=_cut,
    ),
    Condition(
        "code", "code", "digest of the code that scored", MAY, "a version should tell, but was not raised perhaps",
        lambda score: score.recipe.code.digest, to_text=_cut,
    ),
    Condition(
        "code of the run", "code", "digest of the code that ran the agent", MAY,
        "loop, tools and sandbox are the agent's surroundings",
        lambda score: score.recipe.run_code.digest, to_text=_cut,
    ),
    Condition(
        "agent", "", "digest of the agent's settings", CHANGES, "another agent under the same name",
        lambda score: score.recipe.agent_digest, ("agent", "task"),
    ),
    Condition(
        "model served", "", "names of the model in its replies", CHANGES, "the provider changed the model",
        lambda score: ", ".join(sorted(score.recipe.served)), _AGENT,
    ),
    Condition(
        "agent's program", "", "digest of a command-line agent's layer", MAY, "another build, or another version",
        lambda score: score.enforced.layer_sha256 or NOTHING, _AGENT,
    ),
    Condition(
        "agent's brief", "", "digest of the whole brief that the run got", MAY, "the agent was told something else",
        lambda score: score.recipe.brief_sha256, _EACH,
    ),
    Condition(
        "image file", "", "digest of the image's file", NOT, "two builds of the same are never the same bytes",
        lambda score: score.recipe.image_sha256 or NOTHING,
    ),
    Condition(
        "commit", "", "commit of the code that scored", NOT, "the digest of the code decides", _commit,
    ),
    Condition(
        "package version", "", "version of automedbench", NOT, "the digest of the code decides",
        lambda score: score.recipe.code_version,
    ),
)  # fmt: skip
"""Order: as in the signature."""
BY_NAME = {condition.name: condition for condition in CONDITIONS}
KEYS = {
    key: [one for one in CONDITIONS if one.key == key] for key in dict.fromkeys(one.key for one in CONDITIONS) if key
}
OTHER_KEYS = {
    "amb": "version of the signature's form",
    "mixed": "conditions that are not the same for all runs",
    "n": "number of scored runs",
}


class RecordedConditions(NamedTuple):
    """Conditions in a run's records: (condition, shared keys, value), and (key, task, tier, text) of its signature."""

    values: frozenset[tuple[str, tuple[object, ...], object]]
    texts: frozenset[tuple[str, str, str, str]]


def read_conditions(score: ScoreRecord) -> RecordedConditions:
    """Everything that is compared; runs that are alike share it."""
    run = score.run
    return _record(run.agent, run.task, run.tier, tuple([one.value(score) for one in CONDITIONS]))


@functools.lru_cache(10_000)
def _record(agent: str, task: str, tier: str, recorded: Sequence[object]) -> RecordedConditions:
    run, found = {"agent": agent, "task": task, "tier": tier}, dict(zip(BY_NAME, recorded, strict=True))
    values = frozenset(
        (one.name, tuple([run[name] for name in one.same_for]), value)
        for one in CONDITIONS
        if one.effect != NOT and (value := found[one.name]) not in (None, NOTHING)
    )
    texts = frozenset((key, task, tier, _join(key, parts, found)) for key, parts in KEYS.items())
    return RecordedConditions(values, texts)


def _join(key: str, parts: Iterable[Condition], found: Mapping[str, object]) -> str:
    texts = [text for part in parts if (text := part.text(found[part.name]))]
    if key != SITE:
        return "@".join(dict.fromkeys(texts))
    return UNKNOWN if UNKNOWN in texts else _cut(_hash(texts))


def find_differences(runs: Iterable[RecordedConditions]) -> list[str]:
    """Conditions that are not the same for all these runs, so that their scores should not be compared silently."""
    return list(_compared(frozenset(runs))[0])


@functools.lru_cache(10_000)
def _compared(runs: frozenset[RecordedConditions]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Conditions that are not the same for all, and the signature's keys and values; most runs are alike."""
    values = frozenset[tuple[str, tuple[object, ...], object]]().union(*(recorded.values for recorded in runs))
    counts = Counter((name, alike) for name, alike, _ in values)
    differing = {name for (name, _), count in counts.items() if count > 1}
    mixed = tuple(name for name in BY_NAME if name in differing)
    found = {"amb": FORM}
    if mixed:
        found["mixed"] = ",".join(name.replace(" ", "-") for name in mixed)
    texts: dict[str, dict[tuple[str, str], set[str]]] = {}
    for key, task, tier, text in set().union(*(recorded.texts for recorded in runs)):
        texts.setdefault(key, {}).setdefault((task, tier), set()).add(text)
    for key, parts in KEYS.items():
        if not differing & {part.name for part in parts} and (text := _common(texts.get(key, {}))):
            found[key] = text
    return mixed, found


def find_outdated(score: ScoreRecord, requested: Mapping[str, object]) -> tuple[str, ...]:
    """Conditions whose known value differs from the one ``requested``."""
    recorded = {name: BY_NAME[name].value(score) for name in BY_NAME if name in requested}
    return tuple(name for name, found in recorded.items() if found not in (None, NOTHING) and found != requested[name])


def signature(runs: Iterable[RecordedConditions]) -> str:
    """One line for these runs, empty without any: what they were made under; what is not the same for all is ``mixed``.

    ``4*1a2b3c4d``: four values, one for each task or tier, as a digest. Where agents have a condition that others
    do not have, such as a limit of cost, the signature says the one that there is.
    """
    known = list(runs)
    found = _compared(frozenset(known))[1] | {"n": str(len(known))} if known else {}
    return "|".join(f"{key}:{text}" for key, text in found.items())


def mixed_names(text: str) -> list[str]:
    """Names of the conditions in the value of ``mixed``; unknown ones are left out."""
    return [name for name in BY_NAME if name.replace(" ", "-") in text.split(",")]


def _common(cells: Mapping[tuple[str, str], Iterable[str]]) -> str:
    """What a signature says of one key: ``cells``: task and tier → its texts."""
    chosen = {
        cell: max(found, key=lambda text: (UNKNOWN not in text, len(text), text)) for cell, found in cells.items()
    }
    values = sorted(set(chosen.values()))
    if len(values) == 1:
        return values[0]
    if any(UNKNOWN in value.split("@") for value in values):
        return UNKNOWN
    listed = [[task, tier, text] for (task, tier), text in sorted(chosen.items())]
    return f"{len(values)}*{_cut(hash_json(listed))}"


def parse_signature(text: str) -> dict[str, str]:
    """Key → value of a signature; raises ConfigError for a text that is none, or of another form."""
    pairs = [part.partition(":") for part in text.strip().split("|")]
    found = {key: value for key, colon, value in pairs if colon and value}
    if len(found) < len(pairs) or "amb" not in found:
        raise ConfigError([f"'{text[:60]}' is not a signature: key:value|key:value, beginning with amb:{FORM}"])
    if found["amb"] != FORM:
        raise ConfigError([f"amb:{found['amb'][:20]}: this version reads signatures of the form {FORM} only"])
    if unknown := sorted(set(found) - set(KEYS) - set(OTHER_KEYS)):
        raise ConfigError(
            [f"'{unknown[0][:40]}' is not a key of a signature; there are {', '.join([*KEYS, *OTHER_KEYS])}"]
        )
    return found


def strongest_effect(names: Iterable[str]) -> Effect:
    """Strongest effect of a difference in these conditions."""
    found = {BY_NAME[name].effect for name in names}
    return CHANGES if CHANGES in found else MAY if MAY in found else NOT
