"""A host with secrets in every place that must not be reached, and what one attack on it came to.

The attacker knows every path, process id and port of the host, and no filter looks at its code before it runs: what is
tested is the barrier. Evidence is collected beside it, as a run would, and its share is reported, never required.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml
from canaries import exposed, exposures, new_canary
from toys._bench import Bench, stage
from unprivileged import IMAGES, as_user, user_folder

from automedbench.base.cards import Limits
from automedbench.base.records import Finding
from automedbench.sandbox import boxes
from automedbench.sandbox.boxes import ApptainerSandbox
from automedbench.sandbox.container.launcher import Network
from automedbench.sandbox.container.process import CodeResult
from automedbench.sandbox.egress import Egress
from automedbench.sandbox.egress.dial import Upstreams
from automedbench.sandbox.egress.rules import EgressSettings
from automedbench.sandbox.evidence import audit, policy
from automedbench.sandbox.evidence.decoy import Decoy
from automedbench.sandbox.evidence.trace import MODEL

FOLDER = Path(__file__).parent
CONNECTED = "attack-connected"
SECRET = "secret.json"
EGRESS_LOG = "egress.jsonl"
TRACK = "detection"
WORKERS = 2
LIMITS = Limits(disk_gb=0.5, mem_gb=1.0, max_processes=500)

# Names as providers, hubs, clouds, schedulers and the runtime itself use them.
KEY_VARIABLES = (
    *("OPENAI_API_KEY", "OPENROUTER_API_KEY", "ANTHROPIC_API_KEY", "NVIDIA_API_KEY", "GEMINI_API_KEY", "HF_TOKEN"),
    *("HUGGING_FACE_HUB_TOKEN", "KAGGLE_KEY", "AWS_SECRET_ACCESS_KEY", "SLURM_JWT", "HTTPS_PROXY", "DOCKER_PASSWORD"),
    *("APPTAINERENV_SECRET", "SINGULARITYENV_SECRET", "APPTAINERENV_PREPEND_PATH", "APPTAINER_DOCKER_PASSWORD"),
    *("APPTAINERENV_LD_PRELOAD", "PYTHONSTARTUP", "GIT_ASKPASS", "SSH_AUTH_SOCK", "WANDB_API_KEY", "GITHUB_TOKEN"),
)
HOME_FILES = (".netrc", ".ssh/id_rsa", ".aws/credentials", ".kaggle/kaggle.json", ".cache/huggingface/token")


class Box(ApptainerSandbox):
    """The sandbox without the probe of the machine that precedes a run's first call: it was made by the first test."""

    def selfcheck(self) -> str:
        return ""


@dataclass(frozen=True)
class Code:
    """A piece of code from a table; ``@names@`` in it are replaced by what the attacker knows."""

    id: str
    category: str
    language: Literal["python", "bash"]
    code: str
    goal: str = ""
    track: str = ""
    timeout_s: float = 20.0
    files: dict[str, str] = field(default_factory=dict)


def load_table(folder: str) -> list[Code]:
    """Every entry of ``<folder>/<category>.yaml``, in order of the files' names."""
    return [
        Code(id=f"{path.stem}/{name}", category=path.stem, **entry)
        for path in sorted((FOLDER / folder).glob("*.yaml"))
        for name, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items()
    ]


@dataclass(frozen=True)
class Outcome:
    """What one attack came to. ``leaks``, ``effects`` and ``problems`` must be empty."""

    id: str
    category: str
    status: str
    elapsed_s: float
    leaks: list[str]
    effects: list[str]
    problems: list[str]
    findings: list[Finding]
    stdout: str
    stderr: str
    refused: bool = False
    """An output of the attack was refused by the collector, or found malformed by the format check."""

    @property
    def sources(self) -> set[str]:
        """Where evidence came from."""
        return {finding.source for finding in self.findings}

    @property
    def warned(self) -> bool:
        """At least one finding is a warning or worse."""
        return any(finding.severity != "notice" for finding in self.findings)


def failed(attack: Code, error: Exception) -> Outcome:
    """No attack may make the sandbox fail, or what comes after it: its own or another one's."""
    problem = f"the harness failed: {type(error).__name__} {str(error)[:300]}"
    return Outcome(attack.id, attack.category, "harness_error", 0.0, [], [], [problem], [], "", "")


@dataclass
class Site:
    """The host: answers, other runs, the harness, homes, keys in the environment and in an open file."""

    folder: Path
    canary: str = field(default_factory=new_canary)
    token: str = field(default_factory=lambda: f"amb{secrets.token_hex(8)}")
    known: dict[str, object] = field(default_factory=dict)
    benches: dict[str, Bench] = field(default_factory=dict)

    @property
    def private(self) -> Path:
        """The answers of one case."""
        return self.folder / "answers/task/case_0001"

    @property
    def home(self) -> Path:
        """Home of the user who runs the benchmark."""
        return self.folder / "home"

    def prepare(self, attacks: Iterable[Code]) -> None:
        """Stage the tasks that are attacked, and use all of their code once.

        To be called before becoming the ordinary user, who may not be able to load our interpreter's modules.
        """
        for track in sorted({TRACK, *(attack.track for attack in attacks if attack.track)}):
            bench = stage(track, self.folder / "tasks" / track)
            bench.hand_in(bench.perfect(bench.cases[:1]), self.folder / "tasks" / track / "rehearsal")
            self.benches[track] = bench
        exposed(self.canary, b"")
        owner = self.folder.stat()
        for path in self.folder.rglob("*"):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)

    def build(self) -> None:
        """Plant the secret."""
        for name in ("answers/task/case_0001", "runs/other/workspace", "runs/other/log", "harness/src", "keys"):
            (self.folder / name).mkdir(parents=True)
            (self.folder / name / SECRET).write_text(self.canary)
        for name in HOME_FILES:
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(self.canary)
        public = self.folder / "public/case_0001"
        public.mkdir(parents=True)
        (public / "note.txt").write_text("public")
        # A careless site: the public tree holds a link to the private one.
        (self.folder / "public/answers").symlink_to(self.folder / "answers")

    def enter(self) -> None:
        """Become a driver that has keys in its environment, answers as working folder, and an inheritable handle."""
        for name in KEY_VARIABLES:
            os.environ[name] = self.canary
        os.environ["HOME"] = str(self.home)
        os.set_inheritable(os.open(self.private / SECRET, os.O_RDONLY), True)
        os.chdir(self.private)

    def bench(self, track: str) -> Bench:
        """The staged task of a track."""
        return self.benches[track]

    def state(self) -> dict[str, str]:
        """What must not change: path → kind and digest of everything but the attacks' own runs."""
        found = {}
        tops = [top for top in self.folder.iterdir() if top.name not in ("attempts", "tasks")]
        for path in [*tops, *(path for top in tops if top.is_dir() for path in top.rglob("*"))]:
            mode = path.lstat().st_mode
            content = path.read_bytes() if stat.S_ISREG(mode) else b""
            found[str(path.relative_to(self.folder))] = f"{stat.filemode(mode)} {hashlib.sha256(content).hexdigest()}"
        return found


@dataclass
class Trial:
    """One attack on the site: a workspace and a log of its own."""

    site: Site
    attack: Code
    network: Network = "sealed"
    scored: bool = True

    def __post_init__(self) -> None:
        self.folder = self.site.folder / "attempts" / hashlib.sha256(self.attack.id.encode()).hexdigest()[:12]
        self.workspace = self.folder / "workspace"
        self.log = self.folder / "log"
        self.bench = self.site.bench(self.attack.track or TRACK)
        self.public = self.bench.public if self.attack.track else self.site.folder / "public"

    @property
    def output(self) -> str:
        """Path of the first case's output in the workspace."""
        return f"agents_outputs/{self.bench.card.outputs[0].path.replace('{case}', self.bench.cases[0])}"

    def text(self, code: str) -> str:
        """The code with what the attacker knows."""
        case = self.bench.cases[0]
        names: dict[str, object] = {
            "root": self.site.folder,
            "private": self.site.private,
            "secret": self.site.private / SECRET,
            "decoy": f"/data/private/{case}/{SECRET}",
            "driver": os.getpid(),
            "log": self.log,
            "other": self.site.folder / "runs/other",
            "home": self.site.home,
            "own": self.folder,
            "token": self.site.token,
            "case": case,
            "out": self.output,
            "outdir": str(Path(self.output).parent),
            "truth": self.bench.private / case,
            **self.site.known,
        }
        for name, value in names.items():
            code = code.replace(f"@{name}@", str(value))
        return code

    def run(self) -> Outcome:
        """Execute the attack in the real container, then collect, check and score as a run does afterwards."""
        self.workspace.mkdir(parents=True)
        self.log.mkdir()
        (self.log / SECRET).write_text(self.site.canary)
        for name, text in self.attack.files.items():
            path = self.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text(text))
        code = self.text(self.attack.code)
        start = time.monotonic()
        result, seen, marker = self._execute(code)
        submission = self.folder / "collected"
        checked, score = self._hand_in(submission)
        findings = [each for each in seen if each.rule != MODEL]  # of no fault
        findings += audit.submission_findings(checked.rejected)
        findings += audit.decoy_findings(submission / "submission", marker)
        findings = policy.raise_repeated(findings)
        leaks = self._leaks(result)
        return Outcome(
            id=self.attack.id,
            category=self.attack.category,
            status=result.status,
            elapsed_s=time.monotonic() - start,
            leaks=leaks,
            effects=self._effects(),
            problems=[f"scored {score}"] if score else [],
            findings=findings,
            stdout=result.stdout,
            stderr=result.stderr,
            refused=bool(checked.rejected) or any(case.status == "malformed" for case in checked.cases),
        )

    def _execute(self, code: str) -> tuple[CodeResult, list[Finding], str]:
        with (
            Decoy([f"{{case}}/{SECRET}", "labels.csv"], [*self.bench.cases, "case_0001"]) as decoy,
            self._egress() as egress,
            Box(
                image=IMAGES / "light.sif",
                public=self.public,
                workspace=self.workspace,
                network=self.network,
                egress=egress,
                decoy=decoy,
                limits=LIMITS,
            ) as box,
        ):
            result = box.run_code(
                self.attack.language, code, call=7, turn=1, log=self.log, timeout_s=self.attack.timeout_s
            )
            box.end()  # and with it what still works in the background
            return result, box.drain_findings(), decoy.marker

    def _egress(self) -> contextlib.AbstractContextManager[Egress | None]:
        """The proxy of a run that may reach listed hosts, none of which answers here; none in a sealed run."""
        if self.network != "proxied":
            return contextlib.nullcontext()
        (self.folder / "services").mkdir()
        settings = EgressSettings(allow=("pypi.org", "files.pythonhosted.org", "github.com"))
        return Egress(settings, self.folder / EGRESS_LOG, self.folder / "services", upstreams=Upstreams({}, {}))

    def _hand_in(self, folder: Path) -> tuple[Any, float | None]:
        """Collect and check as the import role does; score where the attack is on a track's scorer."""
        checked = self.bench.collect(self.workspace, folder)
        return checked, self.bench.grade(checked, folder).task_score if self.attack.track and self.scored else None

    def _leaks(self, result: CodeResult) -> list[str]:
        """Where the secret came out: streams, log, workspace, collected files."""
        found = [
            f"{name}: {form}"
            for name, text in (("stdout", result.stdout), ("stderr", result.stderr))
            if (form := exposed(self.site.canary, text.encode("utf-8", "replace")))
        ]
        offered = {f"{CONNECTED} proxy.sock"} if self.network == "proxied" else set()
        said = {name: {*getattr(result, name).splitlines()} - offered for name in ("stdout", "stderr")}
        found += [f"{name}: connected" for name, lines in said.items() if any(CONNECTED in line for line in lines)]
        # The log's own secret file was planted by us.
        found += exposures(self.site.canary, self.log, skip=frozenset({SECRET}))
        if (requests := self.folder / EGRESS_LOG).exists() and (
            form := exposed(self.site.canary, requests.read_bytes())
        ):
            found.append(f"requests: {form}")
        return (
            found + exposures(self.site.canary, self.workspace) + exposures(self.site.canary, self.folder / "collected")
        )

    def _effects(self) -> list[str]:
        """What changed outside of the workspace."""
        suffix = ".py" if self.attack.language == "python" else ".sh"
        expected = {SECRET, "0007.out", "0007.err", f"0007{suffix}"}
        strange = {path.name for path in self.log.iterdir()} ^ expected
        effects = [f"log folder: {name}" for name in sorted(strange)]
        effects += [] if (self.log / SECRET).read_text() == self.site.canary else ["an earlier log was changed"]
        written = (self.log / f"0007{suffix}").read_text(encoding="utf-8", errors="surrogateescape")
        return effects + ([] if written == self.text(self.attack.code) else ["the code as logged was changed"])


def run_all(
    attacks: Sequence[Code], *, scored: bool = True, network: Network = "sealed"
) -> tuple[list[Outcome], list[str]]:
    """Every piece of code on one host, ``WORKERS`` at a time; and what the host has to complain about afterwards.

    ``scored``: an attack on a track must score nothing; honest code may.
    """
    with user_folder() as folder:
        site = Site(folder)
        site.prepare(attacks)
        with listener() as known:
            site.known = known
            outcomes = as_user(lambda: _run_all(site, attacks, scored, network))
        return outcomes, left_behind(site)


def _run_all(site: Site, attacks: Sequence[Code], scored: bool, network: Network) -> list[Outcome]:
    site.build()
    site.enter()
    before = site.state()
    # One image for all: its digest need not be taken 300 times.
    boxes.sha256_file = functools.cache(boxes.sha256_file)  # type: ignore[attr-defined,assignment]

    def run(attack: Code) -> Outcome:
        trial = Trial(site, attack, network, scored=scored)
        try:
            outcome = trial.run()
        except Exception as error:
            outcome = failed(attack, error)
        after = site.state()
        changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        outcome.effects.extend(f"host: {name}" for name in changed)
        # Deeper than Python removes, larger than a test machine's disk 300 times.
        subprocess.run(["rm", "-rf", trial.folder], check=False, stderr=subprocess.DEVNULL)
        return outcome

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(run, attacks))


def left_behind(site: Site) -> list[str]:
    """Processes that still work for an attack, and files outside that bear the attackers' mark."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes() + bytes((process / "cwd").readlink())
            if site.token.encode() in words or bytes(site.folder) in words:
                found.append(f"process {process.name}: {words[:200]!r}")
    for folder in (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/dev/mqueue"), Path("/run")):
        found += [str(path) for path in folder.glob(f"*{site.token}*")]
    return found


@contextlib.contextmanager
def listener() -> Iterator[dict[str, object]]:
    """A service of the host on TCP and on an abstract UNIX socket; says CONNECTED to whoever comes."""
    tcp = socket.create_server(("", 0))
    abstract = socket.socket(socket.AF_UNIX)
    name = f"amb-{secrets.token_hex(8)}"
    abstract.bind(f"\0{name}")
    abstract.listen()
    threads = [threading.Thread(target=_greet, args=(server,), daemon=True) for server in (tcp, abstract)]
    for thread in threads:
        thread.start()
    try:
        own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
        addresses = sorted(own | {"127.0.0.1", "::1"})
        yield {"port": tcp.getsockname()[1], "abstract": name, "addresses": addresses}
    finally:
        for server in (tcp, abstract):
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()
        for thread in threads:
            thread.join(5)


def _greet(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = server.accept()
            with client:
                client.sendall(CONNECTED.encode())


def by_category(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Outcomes per table, in the tables' order."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.category, []).append(outcome)
    return groups
