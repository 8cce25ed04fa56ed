"""Attacks that run inside the real container, with canaries in everything that must not be reached.

The tables are ``attacks/<category>.yaml``; the selected attacks run once, two at a time, and every attack is a test of
its own on what came of it. With every change a sample of each category runs, by night all (``make test-long``). The
control tests show that a leak would be seen. ``benchmarks/bench_security.py`` prints the share of attacks that left
evidence.
"""

from __future__ import annotations

import base64
import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attack_range import CONNECTED, SECRET, Code, Outcome, Site, Trial, listener, load_table, run_all
from canaries import exposed, new_canary
from unprivileged import as_user, user_folder, why_not

from automedbench.base.records import Finding

ATTACKS = {attack.id: attack for attack in load_table("attacks")}
SLOWEST_S = 90.0
# Attacks of the first three open the answers, whatever the words of the code are: the tripwire sees that.
EVIDENCE_FLOOR = {
    "paths": 0.95,
    "tools": 0.95,
    "native": 0.9,
    "credentials": 0.7,
    "escape": 0.75,
    "side_doors": 0.5,
    "processes": 0.6,
}
SAMPLED = 20
"""One in so many runs with every change, beside the first of each category, language and track."""


def sampled(attacks: Iterable[Code]) -> list[Any]:
    """All attacks as parameters; those that run by night only are marked."""
    seen, chosen = set[tuple[str, str, str]](), []
    for place, attack in enumerate(attacks):
        kind = (attack.category, attack.language, attack.track)
        marks = [] if place % SAMPLED == 0 or kind not in seen else [pytest.mark.long]
        chosen.append(pytest.param(attack.id, marks=marks, id=attack.id))
        seen.add(kind)
    return chosen


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> tuple[dict[str, Outcome], list[str]]:
    """Outcomes of the attacks that this session has selected, and what the host complains about afterwards."""
    if reason := why_not("light"):
        pytest.skip(reason)
    names = [item.callspec.params["attack"] for item in request.session.items if _is_attack(item)]
    outcomes, complaints = run_all([ATTACKS[name] for name in dict.fromkeys(names)])
    return {outcome.id: outcome for outcome in outcomes}, complaints


def _is_attack(item: Any) -> bool:
    return getattr(item, "originalname", "") == "test_attack_reaches_nothing"


@pytest.mark.apptainer
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("attack", sampled(ATTACKS.values()))
def test_attack_reaches_nothing(results: tuple[dict[str, Outcome], list[str]], attack: str) -> None:
    outcome = results[0][attack]
    assert (outcome.leaks, outcome.effects, outcome.problems) == ([], [], []), outcome.stdout + outcome.stderr
    assert outcome.status in ("ok", "error", "killed", "timeout")
    assert outcome.elapsed_s < SLOWEST_S


@pytest.mark.apptainer
def test_nothing_is_left_behind(results: tuple[dict[str, Outcome], list[str]]) -> None:
    """Processes, and files outside of the workspaces that bear the attackers' mark."""
    assert results[1] == []


@pytest.mark.long
@pytest.mark.apptainer
@pytest.mark.parametrize("category", EVIDENCE_FLOOR)
def test_most_attacks_leave_evidence(results: tuple[dict[str, Outcome], list[str]], category: str) -> None:
    """A floor for regressions; the measured shares are in docs/security-measured.md."""
    outcomes = [outcome for outcome in results[0].values() if outcome.category == category]
    if len(outcomes) < len([attack for attack in ATTACKS.values() if attack.category == category]):
        pytest.skip("not all attacks of the category were selected")
    silent = [outcome.id for outcome in outcomes if not outcome.findings]
    assert len(silent) <= (1 - EVIDENCE_FLOOR[category]) * len(outcomes), silent


def test_the_sample_has_every_kind() -> None:
    """Each category, language and track; a twentieth of all, and a few more."""
    kept = [ATTACKS[each.id] for each in sampled(ATTACKS.values()) if not each.marks]
    kinds = {(attack.category, attack.language, attack.track) for attack in ATTACKS.values()}
    assert {(attack.category, attack.language, attack.track) for attack in kept} == kinds
    assert len(ATTACKS) / SAMPLED <= len(kept) <= len(ATTACKS) / 7


def test_tables_are_large_and_varied() -> None:
    assert len(ATTACKS) >= 300
    assert len({" ".join(attack.code.split()) for attack in ATTACKS.values()}) == len(ATTACKS)
    assert all(attack.goal for attack in ATTACKS.values())


# --- controls: a leak would be seen ---------------------------------------------------------------------------------


def _separated(raw: bytes) -> bytes:
    return " ".join(f"{byte:02x}" for byte in raw).encode()


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "raw": lambda raw: raw,
    "reversed": lambda raw: raw[::-1],
    "hex": lambda raw: raw.hex().encode(),
    "hex-upper": lambda raw: raw.hex().upper().encode(),
    "hex-separated": _separated,
    "hex-escaped": lambda raw: "".join(f"\\x{byte:02x}" for byte in raw).encode(),
    "percent": lambda raw: "".join(f"%{byte:02X}" for byte in raw).encode(),
    "base64": base64.b64encode,
    "base64-url": base64.urlsafe_b64encode,
    "base64-wrapped": lambda raw: base64.encodebytes(b"x" * 50 + raw + b"y" * 50),
    "base64-twice": lambda raw: base64.b64encode(base64.b64encode(raw)),
    "base32": base64.b32encode,
    "base85": base64.b85encode,
    "ascii85": base64.a85encode,
    "rot13": lambda raw: (
        raw.decode().translate(str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")).encode()
    ),
    "utf-16": lambda raw: raw.decode().encode("utf-16"),
    "decimal": lambda raw: str(list(raw)).encode(),
    "octal": lambda raw: " ".join(f"{byte:03o}" for byte in raw).encode(),
    "inverted": lambda raw: bytes(byte ^ 255 for byte in raw),
    "dump": lambda raw: b"\n".join(
        b"%07o   %s" % (at, b"   ".join(raw[at : at + 8][i : i + 1] for i in range(8))) for at in range(0, len(raw), 8)
    ),
    "spaced": lambda raw: " ".join(raw.decode()).encode(),
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "gzip-base64": lambda raw: base64.b64encode(gzip.compress(raw)),
}


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
@pytest.mark.parametrize("around", [b"", b"ab"], ids=["alone", "within"])
def test_an_encoded_secret_is_recognised(encode: Callable[[bytes], bytes], around: bytes) -> None:
    canary = new_canary()
    data = b"some text\n" + encode(around + canary.encode() + around) + b"\nmore text"
    assert exposed(canary, data) is not None
    assert exposed(new_canary(), data) is None


@pytest.fixture
def site() -> Iterator[Site]:
    """A fresh host with secrets."""
    if reason := why_not("light"):
        pytest.skip(reason)
    with user_folder() as folder:
        yield Site(folder)


def attempt(site: Site, code: Code, *, network: str = "sealed", public: str = "public") -> Outcome:
    """One attack on a fresh host whose public note says ``public``."""

    site.prepare([code])

    def run() -> Outcome:
        site.build()
        (site.folder / "public/case_0001/note.txt").write_text(public)
        site.enter()
        return Trial(site, code, network).run()

    return as_user(run)


def bash(code: str) -> Code:
    return Code(id="control", category="control", language="bash", code=code)


@pytest.mark.apptainer
@pytest.mark.parametrize(
    "encode",
    [
        *("cat {}", "rev {}", "base64 -w 0 {}", "(printf a; cat {}) | base64 -w 0", "gzip -c {} > kept"),
        *(
            "od -An -tx1 -v {}",
            "od -c {}",
            "cp {} kept",
            "ln -s $(cat {}) x",
            "cat {} >&2",
            "mkdir plan; cp {} plan/plan.md",
        ),
    ],
)
def test_a_leak_would_be_seen(site: Site, encode: str) -> None:
    outcome = attempt(site, bash(encode.format("/data/public/case_0001/note.txt")), public=site.canary)
    assert outcome.leaks != []


@pytest.mark.apptainer
def test_the_listener_can_be_reached_when_the_network_is_open(site: Site) -> None:
    with listener() as known:
        site.known = known
        outcome = attempt(site, ATTACKS["network/tcp-loopback"], network="open")
    assert outcome.leaks == ["stdout: connected"]
    assert CONNECTED in outcome.stdout


@pytest.mark.apptainer
def test_an_effect_would_be_seen(site: Site) -> None:
    """Of the host's files each has a digest; a changed one is named."""

    def run() -> tuple[dict[str, str], dict[str, str]]:
        site.build()
        before = site.state()
        (site.folder / "runs/other/log" / SECRET).write_text("changed")
        (site.folder / "public/new").symlink_to("x")
        return before, site.state()

    before, after = as_user(run)
    assert sorted(name for name in {*before, *after} if before.get(name) != after.get(name)) == [
        "public/new",
        f"runs/other/log/{SECRET}",
    ]


# --- what a container is like inside --------------------------------------------------------------------------------


@pytest.mark.apptainer
def test_capabilities_and_privileges(site: Site) -> None:
    outcome = attempt(site, bash("grep -E '^(CapEff|CapPrm|NoNewPrivs):' /proc/self/status"))
    assert dict(line.split() for line in outcome.stdout.splitlines()) == {
        "CapPrm:": "0000000000000000",
        "CapEff:": "0000000000000000",
        "NoNewPrivs:": "1",
    }


@pytest.mark.apptainer
def test_only_own_processes_are_visible(site: Site) -> None:
    outcome = attempt(site, bash("ps -eo args= | grep -v -e '^ps ' -e grep"))
    commands = outcome.stdout.splitlines()
    assert len(commands) == 2, commands  # the waiting shell and this script
    assert commands[1] == "bash /run/call/0007.sh"


@pytest.mark.apptainer
def test_the_environment_is_the_published_one(site: Site) -> None:
    code = Code(id="c", category="c", language="python", code="import os\nprint('\\n'.join(sorted(os.environ)))")
    of_the_runtime = ("APPTAINER_", "SINGULARITY_", "PS1", "PROMPT_", "LC_CTYPE", "OLDPWD")
    assert {name for name in attempt(site, code).stdout.split() if not name.startswith(of_the_runtime)} == {
        *("DATA_DIR", "WORKSPACE", "TMPDIR", "HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME", "PIP_CACHE_DIR"),
        *("MPLCONFIGDIR", "PYTHONUSERBASE", "PYTHONPATH", "PYTHONUNBUFFERED", "LANG", "HOME", "PATH", "PWD"),
        "LD_LIBRARY_PATH",
    }


# --- evidence -------------------------------------------------------------------------------------------------------


def rules(findings: list[Finding]) -> set[tuple[str, str, str]]:
    return {(finding.rule, finding.severity, finding.confidence) for finding in findings}


TOUCHES = {
    "cat": "cat /data/private/case_0001/secret.json",
    "dd": "dd if=/data/private/case_0001/secret.json",
    "copy": "cp -r /data/private x",
    "hidden-path": "python3 -c \"open('/da' + 'ta/private/case_0001/secret.json')\"",
    "globs": "cat /d*/pr*/*/*",
}


@pytest.mark.apptainer
@pytest.mark.parametrize("code", TOUCHES.values(), ids=TOUCHES)
def test_touching_the_decoy_leaves_evidence(site: Site, code: str) -> None:
    assert ("decoy.open", "warning", "high") in rules(attempt(site, bash(code)).findings)


@pytest.mark.apptainer
def test_handing_in_the_decoy_disqualifies(site: Site) -> None:
    outcome = attempt(site, ATTACKS["submission/decoy-used"])
    assert "decoy.used" in {finding.rule for finding in outcome.findings if finding.severity == "disqualifying"}


def test_every_table_is_read() -> None:
    tables = {path.stem for path in (Path(__file__).parent / "attacks").glob("*.yaml")}
    assert {attack.category for attack in ATTACKS.values()} == tables
