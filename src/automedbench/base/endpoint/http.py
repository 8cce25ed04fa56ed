"""The HTTP of all requests: which proxy it takes, answers that neither grow nor last without end, what its errors
mean for the error policy.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx2

from automedbench.base.endpoint.faults import Fault, classify_status, retry_after
from automedbench.base.endpoint.keys import shown_place
from automedbench.base.endpoint.replies import is_stream
from automedbench.base.errors import ConfigError

CONNECT_S = 30.0
ANSWERS_S = 10.0
"""How long a server may take to say that it is well."""
MAX_REPLY_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 256 * 1024
Clock = Callable[[], float]


class TooLong(Exception):
    """A reply of more bytes than any reply may have."""


class BadStatus(Exception):
    """An answer that is none: its status, text and headers."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str]) -> None:
        self.status, self.text, self.headers = status, text, headers
        super().__init__(status)


class CutStream(Exception):
    """A streamed answer that broke off: what had come, and why no more did."""

    def __init__(self, data: bytes, reason: httpx2.TransportError) -> None:
        self.data, self.reason = data, reason
        super().__init__(str(reason))


def read_all(parts: Iterable[bytes]) -> bytes:
    """A decoded body in one piece.

    Raises TooLong, so that a small compressed body cannot fill the memory, and CutStream.
    """
    data = bytearray()
    try:
        for part in parts:
            data += part
            if len(data) > MAX_REPLY_BYTES:
                raise TooLong
    except httpx2.TransportError as error:
        if is_stream(bytes(data[:64])):
            raise CutStream(bytes(data), error) from error
        raise
    return bytes(data)


def post(client: httpx2.Client, url: str, headers: Mapping[str, str], body: Any, timeout_s: float) -> bytes:
    """The body of the answer to a JSON ``body``; raises what stands in ``FAILURES``, and CutStream."""
    limit = None if timeout_s == float("inf") else timeout_s
    with client.stream(
        "POST",
        url,
        content=json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"),
        headers={"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers},
        timeout=httpx2.Timeout(limit, connect=min(timeout_s, CONNECT_S)),
    ) as response:
        if not response.is_success:
            raise BadStatus(response.status_code, _text(response), response.headers)
        return read_all(response.iter_bytes())


class Deadline:
    """When the current attempt of this thread must be over."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._local = threading.local()

    def set(self, seconds: float) -> None:
        """The attempt that starts now may take ``seconds``."""
        self._local.end = self._clock() + seconds

    @property
    def left(self) -> float:
        """Seconds left; below zero when it is over."""
        end: float = getattr(self._local, "end", float("inf"))
        return end - self._clock()


class LastHeaders(threading.local):
    """Headers of the last answer that this thread got, good or bad."""

    last: Mapping[str, str] = {}


def make_http_client(
    base_url: str, gateway: str | None, deadline: Deadline, headers: LastHeaders | None = None
) -> httpx2.Client:
    """A client for one endpoint, through ``gateway`` or else the proxies of the environment.

    Loopback and servers that a file lists (a ``file:`` URL) are always reached directly.

    Redirects are not followed: a conversation and a key belong to the configured endpoint only. Raises ConfigError
    when a proxy cannot be used.
    """
    proxy = None if is_direct(base_url) else gateway
    mounts: dict[str, Any] = {}
    if is_direct(base_url):
        mounts = {f"all://{host}": None} if (host := _host(base_url)) else {"http://": None, "https://": None}
    try:
        return httpx2.Client(
            headers={"User-Agent": "automedbench"},
            proxy=proxy,
            mounts=mounts,
            follow_redirects=False,
            event_hooks={"response": [lambda response: _limit(response, deadline, headers or LastHeaders())]},
        )
    except (ImportError, ValueError) as error:
        name = f"gateway {shown_place(gateway)}" if proxy else "HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"
        raise ConfigError([f"{name}: cannot be used for {shown_place(base_url)}: {type(error).__name__}"]) from error


def way(base_url: str, gateway: str | None) -> str:
    """`` through the proxy …`` for messages when requests take one, without its credentials."""
    if is_direct(base_url):
        return ""
    proxies = urllib.request.getproxies()
    scheme, host = urlsplit(base_url).scheme, _host(base_url)
    proxy = gateway or proxies.get(scheme) or proxies.get("all")
    if not proxy or (gateway is None and urllib.request.proxy_bypass(host)):
        return ""
    return f" through the {'gateway' if gateway else 'proxy'} {shown_place(proxy if '://' in proxy else f'http://{proxy}')}"


def is_direct(base_url: str) -> bool:
    """True for what no proxy leads to."""
    return is_loopback(base_url) or urlsplit(base_url).scheme == "file"


def is_loopback(url: str) -> bool:
    """True for ``localhost`` and addresses of this machine's loopback."""
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _host(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host


def _limit(response: httpx2.Response, deadline: Deadline, headers: LastHeaders) -> None:
    headers.last = response.headers
    if isinstance(response.stream, httpx2.SyncByteStream):
        network = response.extensions.get("network_stream")
        response.stream = _Limited(response.stream, response.status_code, deadline, network)


class _Limited(httpx2.SyncByteStream):
    """A body that ends in time. The rest of a long or slow error body is left away; its status says enough."""

    def __init__(self, stream: httpx2.SyncByteStream, status: int, deadline: Deadline, network: Any) -> None:
        self._stream, self._deadline, self._network = stream, deadline, network
        self._is_reply = status == 200

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        with _hang_up_after(self._deadline.left, self._network) as hung_up:
            try:
                for part in self._stream:
                    size += len(part)
                    if self._is_reply and size > MAX_REPLY_BYTES:
                        raise TooLong
                    yield part
                    if hung_up.is_set() or (not self._is_reply and size > MAX_ERROR_BYTES):
                        break
            except httpx2.TransportError:
                if self._is_reply and not hung_up.is_set():
                    raise
        if self._is_reply and hung_up.is_set():
            raise httpx2.ReadTimeout("the reply came too slowly")

    def close(self) -> None:
        self._stream.close()


@contextlib.contextmanager
def _hang_up_after(seconds: float, network: Any) -> Iterator[threading.Event]:
    """Shut the connection down after ``seconds``: a read time-out alone starts anew with every byte."""
    connection = network.get_extra_info("socket") if network is not None else None
    hung_up = threading.Event()
    if connection is None or seconds == float("inf"):
        yield hung_up
        return
    timer = threading.Timer(max(0.0, seconds), _hang_up, [connection, hung_up])
    timer.daemon = True
    timer.start()
    try:
        yield hung_up
    finally:
        timer.cancel()


def _hang_up(connection: socket.socket, hung_up: threading.Event) -> None:
    hung_up.set()
    with contextlib.suppress(OSError, ValueError):
        # The plain socket's method: TLS would wait for the peer.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def trouble_of(
    client: httpx2.Client,
    deadline: Deadline,
    root: str,
    model: str | None = None,
    credentials: Mapping[str, str] | None = None,
) -> str:
    """Why a server takes no requests for ``model`` now (None: for any); empty when it does, or refuses this key.

    Asked are its list of models below ``root`` and before, where there is one, ``/health`` beside its ``/v1``.
    """
    try:
        deadline.set(ANSWERS_S)
        health = status = client.get(f"{root.removesuffix('/v1')}/health", timeout=ANSWERS_S).status_code
        if health < 500:
            deadline.set(ANSWERS_S)
            response = client.get(f"{root}/models", headers=credentials, timeout=ANSWERS_S)
            status, ids = response.status_code, model_ids(response.content)
            if status == 200 and model and ids and not {model, f"{model}:latest"} & set(ids):
                return f"{shown_place(root)} does not list '{model}'"
    except (TooLong, httpx2.HTTPError, httpx2.InvalidURL) as error:
        return f"{shown_place(root)} gives no answer ({type(error).__name__})"
    is_there = status in (200, 401, 402, 403, 429) or (health == 200 and status in (404, 405, 501))
    return "" if is_there else f"{shown_place(root)} answers HTTP {status}"


def model_ids(body: bytes) -> list[str] | None:
    """Names in a list of models; None where it is none."""
    try:
        told = json.loads(body)
        if "models" in told:
            return [str(model["name"]).removeprefix("models/") for model in told["models"]]
        return [str(model["id"]) for model in told["data"]]
    except (ValueError, KeyError, TypeError):
        return None


FAILURES = (TooLong, BadStatus, httpx2.HTTPError, httpx2.InvalidURL)
"""Everything that an attempt may raise."""


def fault_of(error: Exception, timeout_s: float) -> Fault:
    """What was wrong with an attempt that was given ``timeout_s``."""
    if isinstance(error, TooLong):
        return Fault("malformed", 200, f"a reply of more than {MAX_REPLY_BYTES} bytes")
    if isinstance(error, BadStatus):
        return _of_status(error.status, error.text, error.headers)
    if isinstance(error, httpx2.TimeoutException):
        return _of_time_out(error, timeout_s)
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, (httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.LocalProtocolError)):
        return Fault("bad_request", None, text)
    if isinstance(error, httpx2.DecodingError):
        return Fault("malformed", 200, text)
    return Fault("network", None, text)


def _of_status(status: int, text: str, headers: Mapping[str, str]) -> Fault:
    if 300 <= status < 400:
        text = f"redirect to {shown_place(headers.get('location'))}, which is not followed"
    return Fault(classify_status(status, text), status, text, retry_after(headers, body=text))


def _of_time_out(reason: httpx2.TimeoutException, timeout_s: float) -> Fault:
    """No connection is a fault of the network; a late answer may also mean that the run is over."""
    if isinstance(reason, httpx2.ConnectTimeout):
        return Fault("network", None, f"timeout: no connection within {min(timeout_s, CONNECT_S):g} s")
    if isinstance(reason, httpx2.PoolTimeout):
        return Fault("network", None, "timeout: no free connection")
    what = str(reason) if "slowly" in str(reason) else f"no answer within {timeout_s:g} s"
    return Fault("network", None, f"timeout: {what}", slow=True)


def _text(response: httpx2.Response) -> str:
    """The body of an error response; with a broken one its status is known all the same."""
    try:
        return response.read().decode("utf-8", "replace")
    except (httpx2.HTTPError, httpx2.StreamError, UnicodeError) as error:
        return f"unreadable body ({type(error).__name__})"
