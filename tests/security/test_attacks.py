"""Attacks that run inside the real container, with canaries in everything that must not be reached.

The attacker knows every path, process id and port of the host, and no filter looks at its code: what is tested is
the barrier, not the evidence. The control tests show that a leak would be seen.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from unprivileged import IMAGES, as_user, user_folder, why_not

from automedbench.records import Finding
from automedbench.sandbox import CodeResult
from automedbench.sandbox.apptainer import ApptainerSandbox
from automedbench.sandbox.collector import Collected, collect
from automedbench.sandbox.decoy import Decoy

pytestmark = pytest.mark.apptainer

CONNECTED = "attack-connected"
OUTPUT = "agents_outputs/case_0001/prediction.json"

# Names as providers, hubs, clouds and the runtime itself use them.
KEY_VARIABLES = [
    *("OPENAI_API_KEY", "OPENROUTER_API_KEY", "ANTHROPIC_API_KEY", "NVIDIA_API_KEY", "GEMINI_API_KEY", "HF_TOKEN"),
    *("HUGGING_FACE_HUB_TOKEN", "KAGGLE_KEY", "AWS_SECRET_ACCESS_KEY", "SLURM_JWT", "HTTPS_PROXY", "DOCKER_PASSWORD"),
    *("APPTAINERENV_SECRET", "SINGULARITYENV_SECRET", "APPTAINERENV_PREPEND_PATH", "APPTAINER_DOCKER_PASSWORD"),
    *("APPTAINERENV_LD_PRELOAD", "PYTHONSTARTUP", "GIT_ASKPASS", "SSH_AUTH_SOCK"),
]


@dataclass
class Scene:
    """A host with secrets, and one attempt of an agent on it."""

    folder: Path
    canary: str = field(default_factory=lambda: f"canary{secrets.token_hex(16)}")
    findings: list[Finding] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        return self.folder / "runs/this/workspace"

    @property
    def log(self) -> Path:
        return self.folder / "runs/this/log"

    @property
    def private(self) -> Path:
        return self.folder / "answers/task/case_0001"

    def build(self) -> None:
        """Canaries in private data, other runs, the harness's files, earlier logs and the home."""
        for name in ("answers/task/case_0001", "runs/other/workspace", "runs/this/log", "harness", "home/.ssh"):
            (self.folder / name).mkdir(parents=True)
            (self.folder / name / "secret.json").write_text(self.canary)
        (self.folder / "home/.netrc").write_text(self.canary)
        self.workspace.mkdir()
        public = self.folder / "public/case_0001"
        public.mkdir(parents=True)
        (public / "note.txt").write_text("public")
        # A careless site: the public tree holds a link to the private one.
        (self.folder / "public/answers").symlink_to(self.folder / "answers")

    def names(self, **more: object) -> dict[str, object]:
        """What the attacker knows."""
        known = {"root": self.folder, "private": self.private, "driver": os.getpid(), "log": self.log}
        return {**known, "other": self.folder / "runs/other", **more}

    def attack(self, language: str, code: str, network: Any = "sealed", **more: object) -> CodeResult:
        """Run code with ``@name@`` replaced; as a user whose environment is full of keys."""
        for name, value in self.names(**more).items():
            code = code.replace(f"@{name}@", str(value))
        result, self.findings = as_user(lambda: self._attack(language, code, network))
        return result

    def _attack(self, language: Any, code: str, network: Any) -> tuple[CodeResult, list[Finding]]:
        for name in KEY_VARIABLES:
            os.environ[name] = self.canary
        os.environ["HOME"] = str(self.folder / "home")
        # A file that the driver has open, and that a careless child would inherit.
        handle = os.open(self.private / "secret.json", os.O_RDONLY)
        os.set_inheritable(handle, True)
        os.chdir(self.private)
        with (
            Decoy(["{case}/secret.json"], ["case_0001"]) as decoy,
            ApptainerSandbox(
                image=IMAGES / "agent.sif",
                public=self.folder / "public",
                workspace=self.workspace,
                network=network,
                decoy=decoy,
            ) as box,
        ):
            result = box.run_code(language, code, call=7, turn=1, log=self.log, timeout_s=30)
            return result, box.drain_findings()

    def leaks(self, result: CodeResult) -> list[str]:
        """Where the canary shows up, as it is or encoded; the log's own secret file does not count."""
        texts = {"stdout": result.stdout.encode(), "stderr": result.stderr.encode()}
        for folder in (self.workspace, self.log):
            for path in folder.rglob("*"):
                if path.is_file() and not path.is_symlink() and path.name != "secret.json":
                    texts[str(path)] = path.read_bytes()
        return [place for place, text in texts.items() if any(form in text for form in self.forms())]

    def forms(self) -> list[bytes]:
        """The canary in the encodings that an attacker might use."""
        raw = self.canary.encode()
        encoded = [base64.b64encode(bytes(offset) + raw)[4 * (offset > 0) : -4] for offset in range(3)]
        return [raw, raw[::-1], raw.hex().encode(), *(piece[4:-4] for piece in encoded)]


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A fresh host with secrets."""
    if reason := why_not("agent"):
        pytest.skip(reason)
    with user_folder() as folder:
        made = Scene(folder)
        as_user(made.build)
        yield made


ATTACKS: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("attacks.yaml").read_text())


@contextlib.contextmanager
def listener() -> Iterator[dict[str, object]]:
    """A service of the host on TCP and on an abstract UNIX socket; says CONNECTED to whoever comes."""
    tcp = socket.create_server(("", 0))
    abstract = socket.socket(socket.AF_UNIX)
    name = f"amb-{secrets.token_hex(8)}"
    abstract.bind(f"\0{name}")
    abstract.listen()
    threads = [threading.Thread(target=greet, args=(server,), daemon=True) for server in (tcp, abstract)]
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


def greet(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = server.accept()
            with client:
                client.sendall(CONNECTED.encode())


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_attack_reaches_nothing(scene: Scene, attack: dict[str, str]) -> None:
    with listener() as host:
        result = scene.attack(attack["language"], attack["code"], **host)
    assert result.status in ("ok", "error", "killed", "timeout")
    assert scene.leaks(result) == []
    assert CONNECTED not in result.stdout
    assert (scene.folder / "public/case_0001/note.txt").read_text() == "public"
    assert sorted(path.name for path in (scene.folder / "public").iterdir()) == ["answers", "case_0001"]
    assert sorted(path.name for path in scene.log.iterdir()) == sorted(
        ["secret.json", "0007.out", "0007.err", "0007.py" if attack["language"] == "python" else "0007.sh"]
    )


# --- controls: a leak would be seen ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encode",
    [
        *("cat {}", "rev {}", "base64 -w 0 {}", "(printf a; cat {}) | base64 -w 0"),
        *("od -An -tx1 -v {} | tr -d ' \\n'", "cp {} kept"),
    ],
    ids=["raw", "reversed", "base64", "base64-shifted", "hex", "file"],
)
def test_a_leak_would_be_seen(scene: Scene, encode: str) -> None:
    (scene.folder / "public/case_0001/note.txt").write_text(scene.canary)
    assert scene.leaks(scene.attack("bash", encode.format("/data/public/case_0001/note.txt"))) != []


def test_the_listener_can_be_reached_when_the_network_is_open(scene: Scene) -> None:
    with listener() as host:
        result = scene.attack(**ATTACKS["tcp-loopback"], network="open", **host)
    assert CONNECTED in result.stdout


def test_capabilities_and_privileges(scene: Scene) -> None:
    result = scene.attack("bash", "grep -E '^(CapEff|CapPrm|NoNewPrivs):' /proc/self/status")
    assert dict(line.split() for line in result.stdout.splitlines()) == {
        "CapPrm:": "0000000000000000",
        "CapEff:": "0000000000000000",
        "NoNewPrivs:": "1",
    }


def test_only_own_processes_are_visible(scene: Scene) -> None:
    result = scene.attack("bash", "ps -eo args= | grep -v -e '^ps ' -e grep")
    commands = result.stdout.splitlines()
    assert len(commands) == 2, commands  # the waiting shell and this script
    assert commands[1] == "bash /run/call/0007.sh"


def test_the_environment_is_the_published_one(scene: Scene) -> None:
    result = scene.attack("python", "import os\nprint('\\n'.join(sorted(os.environ)))")
    of_the_runtime = ("APPTAINER_", "SINGULARITY_", "PS1", "PROMPT_", "LC_CTYPE", "OLDPWD")
    assert {name for name in result.stdout.split() if not name.startswith(of_the_runtime)} == {
        *("DATA_DIR", "WORKSPACE", "TMPDIR", "HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME", "PIP_CACHE_DIR"),
        *("MPLCONFIGDIR", "PYTHONUSERBASE", "PYTHONPATH", "PYTHONUNBUFFERED", "LANG", "HOME", "PATH", "PWD"),
        "LD_LIBRARY_PATH",
    }


# --- what the agent leaves for the next step ------------------------------------------------------------------------

PLANTED = {
    "link-to-private": ("ln -s @private@/secret.json @out@", "link"),
    "link-to-decoy": ("ln -s /data/private/case_0001/secret.json @out@", "link"),
    "relative-link": ("ln -s ../../../../../answers/task/case_0001/secret.json @out@", "link"),
    "folder-link": ("rmdir $(dirname @out@); ln -s @private@ $(dirname @out@); true", "link"),
    "hard-link": ("echo x > y; ln y @out@", "hardlink"),
    "hard-link-to-public": ("ln /data/public/case_0001/note.txt @out@ || mkfifo @out@", "fifo"),
    "pipe": ("mkfifo @out@", "fifo"),
    "socket": ("python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('@out@')\"", "socket"),
    "huge": ("truncate -s 40G @out@", "too_large"),
    "unreadable": ("echo x > @out@; chmod 0 @out@", "unreadable"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("code", "reason"), PLANTED.values(), ids=PLANTED)
def test_nothing_planted_passes_the_airlock(scene: Scene, code: str, reason: str) -> None:
    scene.attack("bash", "mkdir -p agents_outputs/case_0001\n" + code.replace("@out@", OUTPUT))
    destination = scene.folder / "submission"
    collected: Collected = as_user(lambda: collect(scene.workspace, {OUTPUT: 10_000}, destination))
    assert collected.files == {}
    assert [(item.path, item.reason) for item in collected.rejected][:1] == [(OUTPUT, reason)]
    assert [path for path in destination.rglob("*") if not stat.S_ISDIR(path.lstat().st_mode)] == []


# --- evidence -------------------------------------------------------------------------------------------------------


TOUCHES = {
    "cat": "cat /data/private/case_0001/secret.json",
    "dd": "dd if=/data/private/case_0001/secret.json",
    "copy": "cp -r /data/private x",
    "hidden-path": "python3 -c \"open('/da' + 'ta/private/case_0001/secret.json')\"",
    "globs": "cat /d*/pr*/*/*",
}


@pytest.mark.parametrize("code", TOUCHES.values(), ids=TOUCHES)
def test_touching_the_decoy_leaves_evidence(scene: Scene, code: str) -> None:
    scene.attack("bash", code)
    assert ("decoy.open", "warning", "high") in {(f.rule, f.severity, f.confidence) for f in scene.findings}
