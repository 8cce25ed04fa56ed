"""Egress in the network class ``proxied``: HTTP(S) proxy and model hub mirror outside, reached through sockets.

The proxy is a process of its own, without the agents' keys. Rules: ``rules``, ``sites`` and ``mirror``; evidence:
``exchange``; certificates of TLS that is opened: ``authority``.
docs/specification.md, 9.3 and 9.8.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import certifi

from automedbench.base.closing import Closing
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Finding
from automedbench.sandbox.container.helper import SOURCE, HelperProcess
from automedbench.sandbox.egress.planted import NetworkFault
from automedbench.sandbox.egress.rules import EgressSettings
from automedbench.sandbox.places import CA_FILE, SERVICES_DIR, Services

PROXY_PORT, HUB_PORT, INDEX_PORT = 3128, 8090, 8091
PORTS = {"proxy": PROXY_PORT, "hub": HUB_PORT, "index": INDEX_PORT}
ANSWER_S, END_S = 60.0, 10.0

# All that the proxy's process gets of the driver's environment: where the host's own proxy and certificates are.
_PASSED_ENV = ("PATH", "LANG", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO")
# Where systems keep the certificates that all their programs trust.
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
_CERTIFICATES = dict.fromkeys((*_CA_VARIABLES, "NODE_EXTRA_CA_CERTS"), f"{SERVICES_DIR}/{CA_FILE}")


class Egress(Closing):
    """Proxy and mirror of one attempt. A context manager: leaving it ends the process and removes the sockets."""

    def __init__(
        self,
        settings: EgressSettings,
        log: Path,
        folder: Path,
        *,
        tokens: Mapping[str, str] | None = None,
        cache: tuple[Path, int] | None = None,
        fault: NetworkFault | None = None,
        upstreams: Any = None,
    ) -> None:
        """Start; raises InfrastructureError when the process does not come up.

        ``log`` is the file of the run's requests, ``folder`` (on this node) receives the sockets and is what the
        container sees; ``tokens`` are those of ``settings.gated``. The host's SSL_CERT_FILE or REQUESTS_CA_BUNDLE, if
        set, replaces the certificates that programs inside trust, for sites that inspect TLS. ``cache``: folder and
        bytes of the campaign's cache, for settings with ``cached``. ``fault``: what goes wrong on purpose.
        ``upstreams`` (``dial.Upstreams``) replaces the world in tests.
        """
        self.settings, self._folder = settings, folder
        self._bundle = trusted_bundle() if settings.opened else site_bundle()
        log.parent.mkdir(parents=True, exist_ok=True)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (close)
        # The libraries that this process has, however they became importable here.
        libraries = [place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")]
        places = os.pathsep.join([str(SOURCE), *libraries])
        kept = {name: value for key in _PASSED_ENV for name in (key, key.lower()) if (value := os.environ.get(name))}
        try:
            self._helper = HelperProcess(
                "the egress proxy",
                [sys.executable, "-P", "-m", f"{__name__}.server"],
                END_S,
                env={**kept, "PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": "1"},
                cwd=folder,
                stderr=self._stderr,
            )
        except InfrastructureError:
            self._stderr.close()
            raise
        self._answers = self._helper.control.makefile("rb")
        start = {
            "settings": dataclasses.asdict(settings),
            "log": str(log.resolve()),
            "upstreams": dataclasses.asdict(upstreams) if upstreams is not None else {},
            "tokens": dict(tokens or {}),
            "fault": fault,
            "cache": str(cache[0].resolve()) if cache is not None else None,
            "cache_bytes": cache[1] if cache is not None else 0,
            "bundle": str(self._bundle.resolve()) if self._bundle is not None else None,
        }
        try:
            self._request(start)
        except InfrastructureError:
            self.close()
            raise

    @property
    def services(self) -> Services:
        """The sockets, their ports inside, and the variables that programs inside need."""
        ports = {PORTS[service]: f"{service}.sock" for service in self.settings.services}
        return Services(self._folder, ports, build_environment(self.settings, ca=self._bundle is not None))

    def set_call(self, turn: int | None, call: int | None) -> None:
        """Connections that are made from now on belong to this code call; earlier ones live on.

        Raises InfrastructureError when the proxy has ended.
        """
        self._request({"order": "call", "turn": turn, "call": call})

    def drain(self, *, turn: int | None = None, call: int | None = None) -> list[Finding]:
        """Findings of what was refused since the last drain, worst first, at most five; the log of requests has all.

        Raises InfrastructureError when the proxy has ended.
        """
        found = self._request({"order": "drain", "turn": turn, "call": call})["findings"]
        return [Finding.model_validate(each) for each in found]

    def close(self) -> None:
        """End the process, whose order to end is the end of the control socket; may be called twice."""
        self._answers.close()
        self._helper.close()
        self._stderr.close()
        for name in (*(f"{service}.sock" for service in PORTS), CA_FILE):
            (self._folder / name).unlink(missing_ok=True)

    def _request(self, order: dict[str, Any]) -> dict[str, Any]:
        line, reason = b"", "it has ended"
        try:
            self._helper.control.settimeout(ANSWER_S)
            self._helper.control.sendall(json.dumps(order).encode() + b"\n")
            line = self._answers.readline()
        except OSError as error:
            reason = type(error).__name__
        if not line.endswith(b"\n"):
            self._stderr.seek(0)
            lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
            message = lines[-1][:300] if lines else "no message"
            raise InfrastructureError(
                f"The egress proxy of this run does not answer ({reason}): {message}\n"
                "The attempt is kept; start the same command again."
            )
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise InfrastructureError(answer["failed"])
        return answer


def build_environment(config: EgressSettings, *, ca: bool = False) -> dict[str, str]:
    """Variables inside the container that make ordinary programs use proxy, mirror and the operator's index."""
    found: dict[str, str] = {}
    if "proxy" in config.services:
        proxy = f"http://127.0.0.1:{PROXY_PORT}"
        found = {name: proxy for key in ("HTTP_PROXY", "HTTPS_PROXY") for name in (key, key.lower())}
        found |= dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1")
    if config.hub:
        # The large-file store's own protocol talks to other hosts; without it the hub serves the same files by HTTP.
        found |= {"HF_ENDPOINT": f"http://127.0.0.1:{HUB_PORT}", "HF_HUB_DISABLE_XET": "1"}
    if "index" in config.services:
        found |= dict.fromkeys(("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), f"http://127.0.0.1:{INDEX_PORT}/simple")
    elif config.index.url:
        found["PIP_INDEX_URL"] = config.index.url
        if config.index.url.startswith("http://"):
            found["PIP_TRUSTED_HOST"] = config.index.hosts[0]
    return found | (_CERTIFICATES if ca else {})


def site_certificates(folder: Path) -> Services | None:
    """CA certificates of a site that inspects TLS for containers on its network."""
    bundle = site_bundle()
    if bundle is None:
        return None
    shutil.copyfile(bundle, folder / CA_FILE)
    return Services(folder, {}, _CERTIFICATES)


def site_bundle() -> Path | None:
    """The certificates that this host's programs were told to trust (SSL_CERT_FILE, REQUESTS_CA_BUNDLE)."""
    named = (os.environ.get(name) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"))
    return next((Path(name) for name in named if name and Path(name).is_file()), None)


def trusted_bundle() -> Path:
    """All that programs here trust, for those inside: what the host names, its system's, or certifi's."""
    return site_bundle() or next((Path(name) for name in BUNDLES if Path(name).is_file()), Path(certifi.where()))
