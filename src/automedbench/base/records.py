"""Every JSON file of a campaign, defined once: what a rule writes, the next one reads and validates.

All records are frozen, refuse unknown keys, and carry ``schema: automedbench/<name>/<version>``. Scores are in
[0, 1], durations in seconds of a monotonic clock, times in UTC, money in USD as decimal strings.
Their JSON Schemas are generated into ``config/schemas/`` by ``make schemas``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

# No plug-in of another package has a say in what a record holds; to look for them takes 20 ms of every process.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from pydantic import BaseModel, ConfigDict, Field, model_validator

from automedbench.base.errors import MissingDataError
from automedbench.base.files import parse_json_object, sha256_bytes

Tier = Literal["lite", "standard", "pro"]
Stage = Literal["S1", "S2", "S3", "S4", "S5"]
Language = Literal["python", "bash"]
CallStatus = Literal["ok", "error", "timeout", "refused", "killed", "harness_error"]
Verdict = Literal["clean", "warned", "disqualified"]
"""Of the audit."""
JudgedStage = Literal["S1", "S2", "S3"]
JudgeKind = Literal["heuristic", "llm"]
Score = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Money = Annotated[str, Field(pattern=r"^\d+(\.\d+)?$", description="USD as a decimal string")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

TIERS: tuple[Tier, ...] = ("lite", "standard", "pro")
HEADLINE_TIERS: tuple[Tier, ...] = ("lite", "standard")
"""Tiers that make the headline; pro never does (docs/specification.md, 7)."""

Outcome = Literal[
    "submitted",
    "stopped",
    "time_limit",
    "turn_limit",
    "token_limit",
    "cost_limit",
    "out_of_memory",
    "out_of_disk",
    "refused",
    "disqualified",
]


def now() -> datetime:
    """The present time in UTC, to the millisecond."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class Model(BaseModel):
    """Base of everything typed: frozen, no unknown keys; what validates is built when a record is first made or read.

    A step needs a handful of all records.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True, defer_build=True
    )


def leave_out(*names: str) -> Callable[[Any], Any]:
    """Make a validator that leaves out keys which an earlier version wrote, so that its records can still be read."""
    return lambda record: (
        {name: value for name, value in record.items() if name not in names} if isinstance(record, dict) else record
    )


class RunId(Model):
    """A run = agent × task × tier × repeat."""

    agent: str
    task: str
    tier: Tier
    repeat: int = Field(ge=1)

    @property
    def path(self) -> str:
        """Folder of the run below ``results/runs``."""
        return f"{self.agent}/{self.task}/{self.tier}/r{self.repeat}"


class FileEntry(Model):
    """One file by its content."""

    sha256: Sha256
    bytes: int = Field(ge=0)


class Downloaded(Model):
    """One file, or one repository, as it came from its host."""

    name: str = Field(description="URL without query, or place and path on a hub; never with credentials")
    bytes: int
    sha256: Sha256 | None = Field(description="found; null: a repository, whose revision says what it is")
    published: str | None = Field(
        None, description="checksum that the card or the host gives, which it was held against"
    )
    revision: str | None = Field(None, description="commit that was found, where there are commits")
    client: str = Field(description="program that downloaded it, with its version")


FIXTURE_OF = "fixture of "
"""Prefix of the source of made-up data in a receipt."""


class Receipt(Model):
    """``data/raw/<dataset>/receipt.json``: where raw data came from and what exactly it is."""

    schema_: Literal["automedbench/receipt/1"] = Field("automedbench/receipt/1", alias="schema")
    dataset: str
    source: str = Field(description="kind and place the files came from, for example 'path demo/data/bccd'")
    revision: str | None
    licence: str
    attribution: str
    fetched_at: datetime
    files: dict[str, FileEntry] = Field(description="path below the data set's folder → content")
    downloads: list[Downloaded] = Field(
        default_factory=list, description="what was downloaded before archives were unpacked; empty for your own copy"
    )
    passed_over: list[str] = Field(
        default_factory=list, description="sources that gave something else than the card knows, and what"
    )

    @property
    def made_up(self) -> bool:
        """True when the files are a fixture, not the data set."""
        return self.source.startswith(FIXTURE_OF)


class CaseEntry(Model):
    """One staged case; holds nothing private but hashes."""

    id: str
    inputs: dict[str, FileEntry] = Field(description="file below public/<task>/<case>/ → content")
    private: dict[str, FileEntry] = Field(description="file below private/<task>/<case>/ → content")
    geometry: dict[str, Any] = Field(
        default_factory=dict, description="what an output must match: width and height, or shape, spacing, affine"
    )


class Manifest(Model):
    """``manifests/<task>.json``: the staged cases of a task in their fixed order."""

    schema_: Literal["automedbench/manifest/1"] = Field("automedbench/manifest/1", alias="schema")
    task: str
    task_version: int
    track: str
    dataset: str
    sampling: str = Field(description="the rule and seed that chose the cases")
    made_up: bool = Field(False, description="of a rehearsal's fixture, not of the data set: scores mean nothing")
    cases: list[CaseEntry] = Field(min_length=1)
    private: dict[str, FileEntry] = Field(
        default_factory=dict, description="file below private/<task>/ that belongs to no case → content"
    )
    remarks: list[str] = Field(
        default_factory=list, description="what the leak audit found odd about the staged data; stands on every score"
    )

    @property
    def cases_sha256(self) -> str:
        """Digest of all cases: the same for the same staged data."""
        text = json.dumps([case.model_dump(mode="json") for case in self.cases], sort_keys=True)
        return sha256_bytes(text.encode())

    @property
    def case_ids(self) -> list[str]:
        """Case ids in manifest order."""
        return [case.id for case in self.cases]

    def files(self, side: Literal["inputs", "private"], folder: Path) -> dict[Path, FileEntry]:
        """Staged files of all cases on one side, where the task's folder there is ``folder``."""
        return {folder / case.id / name: entry for case in self.cases for name, entry in getattr(case, side).items()}

    def require(self, side: Literal["inputs", "private"], folder: Path) -> None:
        """Raise MissingDataError when staged files of one side are not below ``folder``, the task's.

        A purge of old files takes single ones: an agent would be blamed for what it could not see.
        """
        files = self.files(side, folder)
        gone = [path for path in files if not path.exists()]
        if gone:
            raise MissingDataError(
                f"{len(gone)} of {len(files)} staged files of {self.task} are gone, the first is {gone[0]}.\nRun "
                "`snakemake prepare`: it stages the same cases again (a purge of old files takes them), repeats no run."
            )


class Tokens(Model):
    """Tokens of a run, or of one or more requests, in one convention for all providers.

    ``cached`` (read from the provider's cache) and ``cache_write`` (written to it) are parts of ``prompt``,
    ``cache_write_1h`` (kept longer, for an hour or more) is part of ``cache_write``, ``reasoning`` of ``completion``.
    """

    prompt: int = 0
    cached: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    completion: int = 0
    reasoning: int = 0
    estimated: bool = Field(False, description="true when a reply came without usage and characters / 4 was taken")

    def __add__(self, other: Tokens) -> Tokens:
        counts = Tokens.model_fields.keys() - {"estimated"}
        sums = {name: getattr(self, name) + getattr(other, name) for name in counts}
        return Tokens(estimated=self.estimated or other.estimated, **sums)

    @property
    def total(self) -> int:
        """Prompt plus completion."""
        return self.prompt + self.completion


class Enforced(Model):
    """Restrictions that the sandbox really enforced during a run; printed with every score."""

    backend: Literal["apptainer", "local"]
    network: Literal["sealed", "proxied", "open"]
    image_sha256: Sha256 | None = None
    layer_sha256: Sha256 | None = Field(None, description="of a command-line agent's program, from its layer's record")
    decoy: bool = False
    gpu: bool = False
    gpu_names: list[str] = Field([], description="cards that the run had, by what they are")
    gpu_share: int = Field(1, description="runs that had these in turn; 1: they were the run's alone")
    tripwire: bool = Field(False, description="opening the decoy is seen by inotify; false: by the trace alone")
    trace: bool = Field(False, description="opens, execs and connects of the run's processes are seen by the kernel")
    seccomp: bool = Field(False, description="a system call filter was in force")
    hook: bool = Field(False, description="run-time evidence was taken inside")
    selfcheck: bool = Field(False, description="a probe with the flags of the run found nothing that it must not")
    memory_bytes: int | None = Field(None, description="of the job, by its cgroup or Slurm; null: no limit")
    max_processes: int | None = Field(None, description="of the container, or RLIMIT_NPROC; null: none")
    limits: Literal["cgroup", "polled"] = Field(
        "polled", description="memory and processes of the container: kept by a cgroup of its own, or looked at"
    )
    egress_sha256: Sha256 | None = Field(None, description="digest of allow-list, deny-list and mirror when proxied")
    from_cache: bool = Field(False, description="models and packages came from the campaign's cache alone")

    @property
    def isolation(self) -> str:
        """Isolation of the run, for example ``apptainer/sealed``, and whether models came from the cache alone."""
        place = f"{self.backend}/{self.network}"
        return f"{place} with cache" if self.from_cache else place


def _sum(one: float | None, other: float | None) -> float | None:
    """None when one of them is not known."""
    return None if one is None or other is None else round(one + other, 2)


class GpuUse(Model):
    """Use of the GPUs of a run, sampled from outside."""

    peak_mib: int = Field(description="most memory in use at a time, of all its cards together, beyond that before it")
    busy_s: Seconds | None = Field(
        description="time in which they computed, of all cards together; null for a slice (MIG): nothing tells it"
    )

    def __add__(self, other: GpuUse) -> GpuUse:
        return GpuUse(peak_mib=max(self.peak_mib, other.peak_mib), busy_s=_sum(self.busy_s, other.busy_s))


class Totals(Model):
    """Usage of a run."""

    turns: int = Field(0, description="model replies")
    wall_s: Seconds = 0.0
    api_s: Seconds = 0.0
    api_retry_s: Seconds = Field(0.0, description="waiting because of provider errors; not charged to the agent")
    exec_s: Seconds = 0.0
    gpu: GpuUse | None = Field(None, description="null: no GPU, or nothing could be told of it")
    n_exec: int = 0
    n_exec_failed: int = 0
    n_recovered_calls: int = 0
    n_format_warnings: int = 0
    n_warnings: int = Field(0, description="sandbox warnings")
    tokens: Tokens = Tokens()
    cost_usd: Money | None = Field(None, description="null when the price is unknown, never 0 for unknown")


class Used(Model):
    """Machine time and memory of a run, or of one process that worked on it; null where unknown, never 0."""

    held_s: Seconds | None = Field(None, description="wall-clock seconds of its processes")
    gpu_held_s: Seconds | None = Field(None, description="the same × GPUs of the run ÷ runs that share them")
    gpu_lease_s: Seconds | None = Field(None, description="seconds of its turns on shared GPUs; null: not shared")
    gpu_waited_s: Seconds | None = Field(None, description="seconds in which it waited for a turn, none of its time")
    gpu_busy_s: Seconds | None = Field(None, description="seconds in which these computed, all together")
    gpu_idle_s: Seconds | None = Field(None, description="longest time in seconds in which one of them did not compute")
    cpu_s: Seconds | None = Field(None, description="CPU seconds of driver and agent's code")
    peak_memory_mib: int | None = Field(None, description="most memory in use by the agent's code")
    nodes: list[str] = []
    jobs: list[str] = Field([], description="Slurm jobs")
    gpu_models: list[str] = []
    gpu_drivers: list[str] = Field([], description="versions of the cards' driver")
    machines: list[str] = Field([], description="processor, processors that the run could use, memory of the node")
    told_by: dict[str, str] = Field({}, description="of each number where it comes from; of a null why it is not known")

    def __add__(self, other: Used) -> Used:
        """Of two processes, one after the other."""
        peaks = [each.peak_memory_mib for each in (self, other) if each.peak_memory_mib is not None]
        idle_s = [each.gpu_idle_s for each in (self, other) if each.gpu_idle_s is not None]
        seconds = ("held_s", "gpu_held_s", "gpu_lease_s", "gpu_waited_s", "gpu_busy_s", "cpu_s")
        lists = ("nodes", "jobs", "gpu_models", "gpu_drivers", "machines")
        return Used(
            **{name: _sum(getattr(self, name), getattr(other, name)) for name in seconds},
            **{name: _union(getattr(self, name), getattr(other, name)) for name in lists},
            gpu_idle_s=max(idle_s, default=None),
            peak_memory_mib=max(peaks, default=None),
            told_by={
                name: "; ".join(_union(*(each.told_by.get(name, "").split("; ") for each in (self, other))))
                for name in _union(list(self.told_by), list(other.told_by))
            },
        )


def _union(one: list[str], other: list[str]) -> list[str]:
    """Items of both, each once."""
    return list(dict.fromkeys(filter(None, [*one, *other])))


class Code(Model):
    """The code that made a record."""

    digest: str = Field(description="of the files of package, rubrics and prompts that a run or a score passes through")
    commit: str | None = Field(None, description="of the repository that they lie in; null: none, or no Git here")
    dirty: bool | None = Field(None, description="whether these files differ from the commit; null: there is none")


class RunConditions(Model):
    """Conditions of a run: what it depends on and its score as well."""

    preset: str = Field(description="named setting of the campaign")
    agent_digest: str
    agent_settings: dict[str, Any] = Field(description="the agent's entry in full, without the way to its keys")
    served: list[str] = Field(description="names of the model in its replies")
    image_flavour: str | None = Field(description="name of the agent's image; null: none, or unknown")
    image_recipe: str | None = Field(description="digest of what that image was made from; null: none, or unknown")
    brief_sha256: Sha256
    common_brief_sha256: Sha256 = Field(
        description="of the brief without what is the agent's own: the same for all agents"
    )
    limits: dict[str, float | int | None] = Field(description="as they were kept for the run")
    task_version: int
    cases_sha256: Sha256 = Field(description="digest of the staged cases that the agent was given")
    draw: int | None = Field(None, description="seed of the fresh draw that the cases are; null: the published draw")


class FaultEvidence(Model):
    """What became of the fault that was planted in a run (docs/treatments.md)."""

    fault: str
    cases: list[str] = Field(default_factory=list, description="cases whose inputs or outputs it changed")
    met: bool | None = Field(description="the run met it, by evidence; null: nothing can tell")
    evidence: str = Field("", description="a line for a person: what says that it was met, or why that is not known")
    kept: bool = Field(
        False, description="what it had put into the workspace lay there unchanged at the end; no score counts that"
    )


class RunRecord(RunConditions):
    """``D/run.json``: the outcome of the attempt that counts."""

    schema_: Literal["automedbench/run/2"] = Field("automedbench/run/2", alias="schema")
    run: RunId
    attempt: int = Field(ge=1)
    outcome: Outcome
    detail: str = Field(description="one line for a person: why the run ended")
    submitted: bool = Field(description="submit_results was accepted")
    summary: str | None = Field(None, description="what the agent said when it submitted")
    provider: str
    origin: str = Field(description="provider that the code comes from: of a replay the recorded run's")
    model: str
    resumes: int = Field(0, description="how often the attempt was interrupted by the machine and went on")
    enforced: Enforced
    totals: Totals
    fault: FaultEvidence | None = Field(None, description="of a run in which something went wrong on purpose")
    attempts_cost_usd: Money | None = Field(
        None, description="of all attempts by then, failed ones included; null: a price is unknown"
    )
    used: Used
    started_at: datetime
    ended_at: datetime
    code_version: str
    code: Code = Field(description="of the process that ended the run")


class Process(Model):
    """One process of a code call by the kernel trace: paths of the workspace (relative), input and skills."""

    command: str = Field(description="command line, cut")
    parent: int | None = Field(description="index of its parent among the call's processes; null: the harness's own")
    exit_code: int | None = Field(description="null: ended by a signal, still running, or not known")
    reads: list[str] = Field(default_factory=list, description="opened to read: workspace, inputs, weights")
    writes: list[str] = Field(default_factory=list, description="workspace files opened to write")
    left_out: int = Field(0, description="further paths, and on a call's last process further processes")


class CodeCall(Model):
    """One executed (or refused) code call as judge and reader see it."""

    turn: int
    call: int
    language: Language
    code: str
    status: CallStatus
    exit_code: int | None = Field(description="null: not known; the call counts as its status says")
    elapsed_s: Seconds
    stdout: str
    stderr: str
    stage: Stage
    new_files: list[str] = Field(default_factory=list, description="workspace files created or changed by the call")
    processes: list[Process] | None = Field(None, description="what each process opened; null: not traced")


class HelpUse(Model):
    """Use of a variant's skills or MCP servers: a file by its path in the folder, or a tool ``mcp__<server>__<tool>``.

    ``call`` is the code call that opened the file; for a tool of a command-line program the last one by then.
    """

    file: str
    call: int
    stage: Stage


_ANSWER_KEYS = frozenset(
    ("status", "exit_code", "stdout", "stderr", "elapsed_s", "truncated", "timed_out", "remaining_s")
)
"""Keys of the harness's usual answer to a code call."""


class Message(Model):
    """One message as sent or received."""

    turn: int
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    reasoning: str = Field("", description="what the provider shows of the model's thoughts; no judge sees it")
    by_program: bool = Field(
        False,
        description="written by a command agent's program for its model: no brief of ours, no word of the model's",
    )

    def repeats(self, calls: Iterable[CodeCall]) -> bool:
        """A tool message that only returns what a call of its turn printed; one with a warning says more."""
        if self.role != "tool" or not (calls := list(calls)):
            return False
        if answer := parse_json_object(self.content):
            return "stdout" in answer and answer.keys() <= _ANSWER_KEYS
        printed = (text.strip()[:80] for call in calls for text in (call.stdout, call.stderr) if text.strip())
        return any(text in self.content for text in printed)


class Conversation(Model):
    """``D/conversation.json``: compact copy of a run for judge and reader."""

    schema_: Literal["automedbench/conversation/2"] = Field("automedbench/conversation/2", alias="schema")
    run: RunId
    n_cases: int = Field(description="cases of the task")
    gpu: bool = Field(description="whether the run had a GPU")
    messages: list[Message]
    calls: list[CodeCall]
    help_used: list[HelpUse] = Field(
        default_factory=list, description="what tools of a command-line program used of its treatment, in order"
    )
    plan: str | None = Field(description="plan/plan.md as it was at the end, at most 64 KiB")
    has_plot: bool = Field(
        description="plan/plan.png begins as a PNG image of bounded size; whether it decodes, the collection finds out"
    )
    workspace_files: dict[str, int] = Field(description="path → bytes at the end, caches left out")
    n_unlisted: int = Field(0, description="further files of the workspace, which are too many to be listed")


class Problem(Model):
    """Why a case is not valid: a stable code and one line for a person."""

    code: str
    message: str


class CaseSubmission(Model):
    """The verdict of the format check on one expected case."""

    case: str
    status: Literal["valid", "malformed", "missing"]
    completed: bool = Field(description="has a prediction that can be scored (a malformed file may still be scored)")
    problems: list[Problem] = Field(
        default_factory=list, description="of a malformed or missing case what is wrong, of a valid one remarks"
    )
    files: dict[str, FileEntry] = Field(default_factory=dict)
    dropped: int = Field(0, description="parts of the prediction that were left out of scoring")


RejectedReason = Literal[
    "link", "hardlink", "fifo", "socket", "device", "directory", "too_large", "unexpected", "unreadable"
]


class Rejected(Model):
    """A path in the agent's output folder that was not copied."""

    path: str
    reason: RejectedReason
    target: str | None = Field(None, description="of a link")


class SubmissionRecord(Model):
    """``D/submission.json``: what was collected from the workspace and whether it keeps the output contract."""

    schema_: Literal["automedbench/submission/1"] = Field("automedbench/submission/1", alias="schema")
    run: RunId
    track_version: int
    cases: list[CaseSubmission] = Field(description="one per expected case, in manifest order")
    extra: dict[str, FileEntry] = Field(default_factory=dict, description="collected files beside cases: the plan")
    rejected: list[Rejected] = Field(default_factory=list)
    completion_rate: Score = Field(description="completed cases ÷ expected cases")
    valid_rate: Score = Field(description="valid cases ÷ expected cases")

    @property
    def all_valid(self) -> bool:
        """Every expected case is there and valid."""
        return all(case.status == "valid" for case in self.cases)

    @property
    def submitted_valid(self) -> bool:
        """At least one output was submitted and every submitted one is valid: S4's flag (docs/specification.md, 6)."""
        there = [case for case in self.cases if case.status != "missing"]
        return bool(there) and all(case.status == "valid" for case in there)


Source = Literal[
    "tripwire", "trace", "collector", "egress", "static", "runtime", "telemetry", "probe", "judge", "operator"
]
Category = Literal[
    "private_access",
    "credential",
    "other_runs",
    "harness",
    "escape",
    "network",
    "training",
    "submission",
    "judge_injection",
    "resource",
]
Confidence = Literal["high", "medium", "low"]
Severity = Literal["notice", "warning", "disqualifying"]


class Finding(Model):
    """One piece of evidence of a broken rule (docs/specification.md, 9.5)."""

    id: str
    rule: str = Field(description="stable id, for example decoy.open")
    source: Source
    category: Category
    confidence: Confidence
    severity: Severity
    turn: int | None = None
    call: int | None = None
    evidence: str = Field(max_length=300, description="path, host or snippet, masked")
    blocked: bool = False

    @classmethod
    def of(
        cls,
        rule: str,
        source: Source,
        category: Category,
        severity: Severity,
        confidence: Confidence,
        evidence: str,
        *,
        turn: int | None = None,
        call: int | None = None,
        place: str | None = None,
        blocked: bool = False,
    ) -> Self:
        """A finding whose id is its rule and ``place``, by default the number of its call; evidence is cut to size."""
        return cls(
            id=f"{rule}-{place or ('end' if call is None else f'{call:04d}')}",
            rule=rule,
            source=source,
            category=category,
            confidence=confidence,
            severity=severity,
            turn=turn,
            call=call,
            evidence=evidence[:300],
            blocked=blocked,
        )


class Decision(Model):
    """``D/decision.yaml``: what an operator decided after reading the findings of a run."""

    decision: Literal["uphold", "lift"]
    by: str = Field(min_length=1, max_length=200)
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    why: str = Field(min_length=1, max_length=2000)
    confirmed_no_inference: bool | None = Field(
        None,
        description="true: the outputs came out of no method, and the task score is 0; false: they came out of one; "
        "both hold against the measured effect",
    )


ModelLock = Literal["kept", "violated", "unknown"]
"""Use of the prescribed checkpoint in a lite run."""


class AuditRecord(Model):
    """``D/audit.json``: all findings of a run and the verdict they lead to."""

    schema_: Literal["automedbench/audit/1"] = Field("automedbench/audit/1", alias="schema")
    run: RunId
    policy_version: int
    verdict: Verdict
    reason: str | None
    findings: list[Finding]
    enforced: Enforced
    by_severity: dict[str, int] = Field(default_factory=dict, description="number of findings")
    by_category: dict[str, int] = Field(default_factory=dict, description="number of findings")
    n_warnings: int = Field(0, description="strikes: calls with a high-confidence warning, and such submissions")
    proposed: Verdict | None = Field(None, description="the verdict of the findings alone, where an operator decided")
    decision: Decision | None = Field(None, description="the operator's, if there is one")
    model_lock: ModelLock | None = Field(
        None, description="of lite runs: was the given checkpoint the one that was used"
    )
    model_opened: bool | None = Field(
        None, description="weights, or a program that computes models, were opened; null: the trace cannot tell"
    )
    model_files: list[str] = Field(default_factory=list, description="of models, opened or fetched; the first 20")

    @property
    def confirmed_no_inference(self) -> bool | None:
        """Operator's decision whether the outputs came out of no method; None without one."""
        return None if self.decision is None else self.decision.confirmed_no_inference


CodeName = Literal["E1", "E2", "E3", "E4", "E5"]


class Criterion(Model):
    """A judge's verdict on one criterion, with the evidence it rests on."""

    id: str
    stage: Stage
    verdict: Score
    auto: bool = Field(False, description="credited by the tier, not judged")
    applicable: bool = Field(True, description="false: the machine let no run earn it; left out of the stage's mean")
    valid: bool = True
    weak: bool = Field(
        False, description="asked twice, the quote is from a call that does not bear on the criterion: not earned"
    )
    quote: str = Field("", max_length=600)
    turn: int | None = None
    reason: str = ""
    votes: list[Score] = Field(
        default_factory=list, description="verdicts of a panel's valid judgements, in their order; empty for one judge"
    )


class ErrorCode(Model):
    """One error code of taxonomy ``cause-v2`` with the line that shows it."""

    code: CodeName
    stage: Stage
    evidence: str = Field(max_length=300)
    source: Literal["rule", "judge"] = Field("rule", description="a deterministic detector, or a judge with a quote")
    detector: str = Field("", description="what found it, for example setup.unrepaired; of a judge its id")
    turn: int | None = None


class Injection(Model):
    """A passage of agent text that addresses the judge; it is masked and the judge asked again."""

    rule: str = Field(description="stable id of the pattern, for example judge.order")
    where: str = Field(description="what holds it: plan, note, code, stdout, stderr, file name, picture")
    turn: int | None = None
    passage: str = Field(max_length=300)


class Judgement(Model):
    """One judgement of a run by one member of a panel."""

    judge: str = Field(description="name of the member in the judges file")
    model: str
    repeat: int = Field(ge=1)
    criteria: list[Criterion] = Field(description="those it was asked; invalid ones kept with valid: false")
    stages: dict[JudgedStage, Score] = Field(description="stages with a valid answer, after needs and credits")
    invalid: dict[JudgedStage, str] = Field(default_factory=dict, description="stage → why there is no valid answer")
    error_codes: list[ErrorCode] = Field(default_factory=list)
    n_weak: int = Field(0, description="verdicts that were not earned because their quotes stayed weak")
    left_out: dict[JudgedStage, str] = Field(
        default_factory=dict, description="stage → what its window had no room for, as the judge was told"
    )
    saw_plot: bool = Field(False, description="plan.png was shown")
    masked: bool = Field(False, description="passages that address the judge were masked")
    requests: int = 0
    cached: int = Field(0, description="answers that came from the cache and cost nothing")
    tokens: Tokens = Tokens()
    cost_usd: Money | None = None
    wasted_tokens: Tokens = Field(Tokens(), description="the part that went into invalid answers")
    wasted_usd: Money | None = Field(None, description="what they cost; null where the judge has no price")


class PanelMember(Model):
    """One judge of a panel."""

    name: str = Field(description="in the judges file")
    digest: str = Field(description="of what changes its answers")
    settings: dict[str, Any] = Field(description="its entry in full, without the way to its keys")


class JudgeRecord(Model):
    """``D/judge.json``: S1–S3 with evidence; kept apart from every number an agent can influence."""

    schema_: Literal["automedbench/judge/2"] = Field("automedbench/judge/2", alias="schema")
    run: RunId
    judge: str = Field(description="id of the judge or panel, for example heuristic-1")
    kind: JudgeKind
    prompt_version: int | None = Field(None, description="of what a panel is asked; null: rules")
    panel: list[PanelMember] = Field(default_factory=list, description="its members; empty: rules")
    rubric_version: int
    criteria: list[Criterion]
    stages: dict[JudgedStage, Score] = Field(description="of a panel the mean over its valid judgements")
    spread: dict[JudgedStage, Number | None] = Field(
        default_factory=dict, description="of a panel: sample standard deviation between judgements; null for one"
    )
    judgements: list[Judgement] = Field(default_factory=list, description="of a panel, one per member and repeat")
    injections: list[Injection] = Field(default_factory=list)
    error_codes: list[ErrorCode] = Field(default_factory=list, description="assigned by most of the judgements")
    tokens: Tokens = Tokens()
    cost_usd: Money | None = None

    _retired = model_validator(mode="before")(leave_out("provenance"))


class AnswerVerdict(Model):
    """Verdict on the answer to one question."""

    case: str
    status: Literal["judged", "shortcut", "unjudged", "not_sent"] = Field(
        description="shortcut: empty or equal but for case; unjudged: no usable reply; not_sent: strict kind, no answer"
    )
    score: Score | None = Field(None, description="0, 0.5 or 1; null unless judged or by shortcut")
    rationale: str = Field("", max_length=200)
    cached: bool = False
    answer_sha256: Sha256 | None = Field(None, description="of the collected answer.json")


class AnswerJudgement(Model):
    """``D/answer_judge.json``: the verdicts on one submission, one per expected question in manifest order."""

    schema_: Literal["automedbench/answer-judge/1"] = Field("automedbench/answer-judge/1", alias="schema")
    run: RunId
    model: str
    prompt_version: int
    verdicts: list[AnswerVerdict]
    n_unjudged: int
    tokens: Tokens = Field(Tokens(), description="of this judgement; cached verdicts cost nothing")


class CaseScore(Model):
    """Metrics of one case; ``detail`` is track-specific and meant for the case viewer."""

    case: str
    status: Literal["valid", "malformed", "missing"]
    metrics: dict[str, Number | None]
    detail: dict[str, Any] = Field(default_factory=dict)


class Verification(Model):
    """Result of computing the same metric with an independent library."""

    library: str
    value: Number
    difference: Number
    tolerance: Number


class Prior(Model):
    """The most that answers earn which look at no case; they are told in words, since they may be held-out answers."""

    answers: str
    value: Score = Field(description="task score of these answers")


EffectVerdict = Literal["shown", "none", "unclear"]
EffectRule = Literal["counted", "shown_only"]
"""Whether outputs without an effect of their case lower a run's stages, or are only told."""


UNMEASURED = "not measured"
"""Reason of an effect that was not measured: the record is of an earlier version."""


class Effect(Model):
    """Effect of the case on a run's outputs: their quality on their own answers against others', measured."""

    verdict: EffectVerdict = "unclear"
    reason: str = Field(UNMEASURED, description="one line: what was measured, with figures")
    n: int = Field(0, ge=0, description="outputs that were measured")
    own: Number | None = Field(None, description="mean quality of outputs on their own answers")
    other: Number | None = Field(None, description="mean quality of outputs on answers of other cases")
    value: Number | None = Field(None, description="own minus other")
    low: Number | None = Field(None, description="95 % interval of the value, lower end")
    high: Number | None = Field(None, description="95 % interval of the value, upper end")
    p: Score | None = Field(None, description="one-sided, by permutations of whole answers")
    margin: Number | None = Field(None, description="what the value must exceed")
    gain: Number | None = Field(None, description="of pictures: quality minus that of the input's best trivial form")
    gain_low: Number | None = Field(None, description="95 % interval of the gain, lower end")
    gain_high: Number | None = Field(None, description="95 % interval of the gain, upper end")
    gain_p: Score | None = Field(None, description="one-sided, by sign flips over cases")
    alike: Score | None = Field(None, description="share of outputs that are the same once names and times are out")
    copies: Score | None = Field(None, description="share of outputs that are the input or a trivial form of it")

    @property
    def is_measured(self) -> bool:
        return self.reason != UNMEASURED


class DetailReport(Model):
    """``D/detail_report.json``: task metrics per case, per group and in aggregate."""

    schema_: Literal["automedbench/detail-report/1"] = Field("automedbench/detail-report/1", alias="schema")
    run: RunId
    track: str
    track_version: int
    task_version: int
    settings: dict[str, Any] = Field(description="metric settings of the card, complete")
    quality_name: str
    quality: Score = Field(description="the track's metric over all expected cases")
    completion_rate: Score
    task_score: Score
    medal: str
    metrics: dict[str, Number | None] = Field(description="aggregate diagnostics; null where undefined")
    groups: dict[str, dict[str, Number | None]] = Field(description="per class, target or question type")
    cases: list[CaseScore]
    prior: Prior | None = Field(None, description="null where constants earn nothing, or are not tried")
    effect: Effect = Effect()
    contradicting: Score | None = Field(
        None, description="share of statements that contradict the reference, where the track finds it remarkable"
    )
    notes: list[str] = Field(default_factory=list, description="what a reader of the numbers must know")
    made_up: bool = Field(False, description="the cases are a rehearsal's fixture: the numbers mean nothing")
    verification: Verification | None = None


class Recipe(RunConditions):
    """Everything a score depends on, with ``enforced`` and ``used`` beside it."""

    track_version: int
    settings: dict[str, Any]
    rubric_version: int
    judge: str
    judge_kind: JudgeKind
    prompt_version: int | None = Field(None, description="of what a panel is asked; null: rules")
    panel: list[PanelMember] = Field(default_factory=list, description="members of the panel; empty: rules")
    policy_version: int = Field(description="of the audit")
    score_version: int = Field(description="of how the run's numbers were put together")
    effects: EffectRule | None = Field(
        None, description="whether outputs without an effect of their case lower the stages; null: it was not measured"
    )
    image_sha256: Sha256 | None
    code_version: str
    code: Code = Field(description="that put the score together")
    run_code: Code = Field(description="that ran the agent")


class Scores(Model):
    """The numbers of one run, before or after the penalty of a disqualification."""

    s1: Score
    s2: Score
    s3: Score
    s4: Score
    s5: Score
    agentic: Score
    task: Score
    overall: Score


class ScoreRecord(Model):
    """``D/score.json``: one row of the leaderboard."""

    schema_: Literal["automedbench/score/2"] = Field("automedbench/score/2", alias="schema")
    run: RunId
    track: str
    model: str
    outcome: Outcome
    disqualified: bool
    failed: bool = Field(description="no complete final submission")
    scores: Scores
    unpenalised: Scores | None = Field(description="of a disqualified run, for the record only")
    quality_name: str
    quality: Score
    completion_rate: Score
    valid_rate: Score
    medal: str = Field(description="of complete and valid runs that beat the prior, by the task's thresholds")
    effect: Effect = Field(Effect(), description="of the case on the outputs, as measured")
    no_effect: bool = Field(
        False, description="no effect of the case: as measured, as an operator decided, or as no input was opened"
    )
    stage_limits: dict[Stage, Score] = Field(
        default_factory=dict, description="stage → the most it may earn without an effect; empty: nothing is limited"
    )
    contradicting: Score | None = Field(None, description="as in detail_report.json; shown as a mark, never counted")
    made_up: bool = Field(False, description="on made-up data: the numbers mean nothing")
    model_lock: ModelLock | None = Field(
        None, description="of lite runs: was the given checkpoint the one that was used"
    )
    taxonomy: Literal["cause-v2"] = "cause-v2"
    error_codes: list[ErrorCode]
    n_findings: int
    case_scores: list[Score] | None = Field(
        None,
        description="what each expected case adds to the task score, in manifest order, four decimals; null where "
        "it is no mean over cases",
    )
    panel: dict[str, dict[JudgedStage, Score]] = Field(
        default_factory=dict, description="<judge>#<repeat> → its valid stage scores, for agreement"
    )
    judge_spread: dict[JudgedStage, Number | None] = Field(default_factory=dict)
    judge_tokens: int = Field(0, description="apart from what the run used")
    judge_cost_usd: Money | None = Field(None, description="apart from what the run cost; null when unknown")
    totals: Totals
    attempts: int = Field(1, ge=1, description="at the run, up to the one that counts")
    attempts_cost_usd: Money | None = Field(None, description="of all of them; null: a price is unknown")
    used: Used = Field(description="as in run.json")
    enforced: Enforced
    recipe: Recipe
    sources: dict[str, Sha256] = Field(
        min_length=1, description="record of the run (run.json …) → digest of the file that was scored"
    )

    _retired = model_validator(mode="before")(leave_out("inference", "inference_reason", "above_prior"))
