"""HTTP of model endpoints: one client each, with its proxy, a deadline and a limit of size for every answer.

Chat completions and Responses go through ``openai``, Messages and Gemini directly; below both is one httpx2 client.
``openai`` is imported with the first request that needs it; it retries nothing, parses nothing, and sends no header but
ours: what the operator's environment says of OpenAI (``OPENAI_*``) goes to no endpoint.
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
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2

from automedbench.base.closing import Closing
from automedbench.base.endpoint.address import ProtocolName, credentials
from automedbench.base.endpoint.faults import Fault, classify_status, parse_retry_after
from automedbench.base.endpoint.replies import is_stream, sanitize
from automedbench.base.errors import ConfigError
from automedbench.base.keys import shown_place

if TYPE_CHECKING:
    from openai import APIResponse

CONNECT_S = 30.0
ANSWERS_S = 10.0
"""Time-out of a health check."""
MAX_REPLY_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 256 * 1024
USER_AGENT = "automedbench"
_LIBRARY_HEADERS = ("X-Stainless-Retry-Count", "X-Stainless-Read-Timeout")
"""Headers that ``openai`` adds to its default ones."""
Clock = Callable[[], float]


class ReplyTooLong(Exception):
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

    Raises ReplyTooLong, so that a small compressed body cannot fill the memory, and CutStream.
    """
    data = bytearray()
    try:
        for part in parts:
            data += part
            if len(data) > MAX_REPLY_BYTES:
                raise ReplyTooLong
    except httpx2.TransportError as error:
        if is_stream(bytes(data[:64])):
            raise CutStream(bytes(data), error) from error
        raise
    return bytes(data)


class RequestInFlight(threading.local):
    """The request under way in this thread: its deadline, and status and headers of the last answer, good or bad."""

    end: float = float("inf")
    status: int = 0
    headers: Mapping[str, str] = {}


_OPENAI = frozenset({"chat", "responses"})
"""Protocols that ``openai`` carries."""


class EndpointHttp(Closing):
    """The connections to one endpoint, or to the servers of one file; a context manager that closes them.

    Through the proxies of the environment; loopback and servers of a file (a ``file:`` URL) are always reached
    directly. Redirects are not followed: a conversation and a key belong to the configured endpoint
    alone. Usable by several threads. Raises ConfigError when a proxy cannot be used.
    """

    def __init__(self, base_url: str, clock: Clock = time.monotonic) -> None:
        self._clock, self._request = clock, RequestInFlight()
        self._client = _make_client(base_url, self._limit)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the last answer that this thread got; empty where there was none."""
        return self._request.headers

    def post(
        self, protocol: ProtocolName, root: str, path: str, key: str, body: dict[str, Any], timeout_s: float
    ) -> bytes:
        """The body of the answer to a JSON ``body``, complete within ``timeout_s``.

        ``root``: URL of the API (see ``api_root``), ``path``: behind it. Raises what stands in ``FAILURES``, and
        CutStream.
        """
        self._request.end = self._clock() + timeout_s
        self._request.status, self._request.headers = 0, {}
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "user-agent": USER_AGENT,
            **{name.lower(): value for name, value in credentials(protocol, key).items()},
        }
        timeout = httpx2.Timeout(None if timeout_s == float("inf") else timeout_s, connect=min(timeout_s, CONNECT_S))
        if protocol in _OPENAI:
            return self._post_by_openai(protocol, root, headers, sanitize(body), timeout)
        content = json.dumps(sanitize(body), ensure_ascii=False).encode()
        with self._client.stream("POST", root + path, content=content, headers=headers, timeout=timeout) as response:
            if not response.is_success:
                raise BadStatus(response.status_code, _text(response), response.headers)
            return read_all(response.iter_bytes())

    def find_problem(self, root: str, model: str | None = None, credentials: Mapping[str, str] | None = None) -> str:
        """Reason why a server serves no ``model`` now (None: any model); empty when it does, or refuses this key.

        Requested are its list of models below ``root`` and before, where there is one, ``/health`` beside its ``/v1``.
        """
        try:
            health = status = self._get(f"{root.removesuffix('/v1')}/health", None, ANSWERS_S).status_code
            if health < 500:
                response = self._get(f"{root}/models", credentials, ANSWERS_S)
                status, ids = response.status_code, parse_model_ids(response.content)
                if status == 200 and model and ids and not {model, f"{model}:latest"} & set(ids):
                    return f"{shown_place(root)} does not list '{model}'"
        except (ReplyTooLong, httpx2.HTTPError, httpx2.InvalidURL) as error:
            return f"{shown_place(root)} gives no answer ({type(error).__name__})"
        is_there = status in (200, 401, 402, 403, 429) or (health == 200 and status in (404, 405, 501))
        return "" if is_there else f"{shown_place(root)} answers HTTP {status}"

    def list_models(self, url: str, credentials: Mapping[str, str], timeout_s: float) -> tuple[int, bytes]:
        """Status and body of a list of models; raises what stands in ``FAILURES``."""
        response = self._get(url, credentials, timeout_s)
        return response.status_code, response.content

    def _get(self, url: str, headers: Mapping[str, str] | None, timeout_s: float) -> httpx2.Response:
        self._request.end = self._clock() + timeout_s
        return self._client.get(url, headers=headers, timeout=timeout_s)

    def _post_by_openai(
        self, protocol: ProtocolName, root: str, headers: dict[str, str], body: dict[str, Any], timeout: httpx2.Timeout
    ) -> bytes:
        """The decoded body as it came, also of a stream; the library's errors as those of httpx2."""
        from openai import APIConnectionError, APIStatusError

        try:
            with self._openai_request(protocol, root, headers, body, timeout) as response:
                return read_all(response.iter_bytes())
        except APIStatusError as error:
            raise BadStatus(error.status_code, _text(error.response), error.response.headers) from None
        except APIConnectionError as error:
            raise error.__cause__ or error from None
        except httpx2.DecodingError as error:
            last = self._request
            if last.status < 300:
                raise
            raise BadStatus(last.status, f"unreadable body ({type(error).__name__})", last.headers) from None

    def _openai_request(
        self, protocol: ProtocolName, root: str, headers: dict[str, str], body: dict[str, Any], timeout: httpx2.Timeout
    ) -> AbstractContextManager[APIResponse[Any]]:
        """The request; its raw answer is read in parts, so that of a stream that breaks off the beginning is known."""
        from openai import OpenAI, omit

        api = OpenAI(
            base_url=root,
            api_key="set by each request",
            admin_api_key="",
            organization="",
            project="",
            webhook_secret="",
            max_retries=0,
            http_client=self._client,
        )
        sent = {name.lower(): omit for name in (*api.default_headers, *_LIBRARY_HEADERS)} | headers
        if protocol == "responses":
            return api.responses.with_streaming_response.create(extra_body=body, extra_headers=sent, timeout=timeout)
        return api.chat.completions.with_streaming_response.create(
            model="", messages=[], extra_body=body, extra_headers=sent, timeout=timeout
        )

    def _limit(self, response: httpx2.Response) -> None:
        """Note an answer, and bound the time and the size of its body."""
        self._request.status, self._request.headers = response.status_code, response.headers
        if isinstance(response.stream, httpx2.SyncByteStream):
            network, left_s = response.extensions.get("network_stream"), self._request.end - self._clock()
            response.stream = _Limited(response.stream, response.status_code, left_s, network)


def _make_client(base_url: str, hook: Callable[[httpx2.Response], None]) -> httpx2.Client:
    mounts: Any = {"http://": None, "https://": None} if is_direct(base_url) else {}
    try:
        return httpx2.Client(
            headers={"User-Agent": USER_AGENT},
            mounts=mounts,
            follow_redirects=False,
            event_hooks={"response": [hook]},
        )
    except (ImportError, ValueError) as error:
        place = shown_place(base_url)
        raise ConfigError(
            [f"HTTPS_PROXY, HTTP_PROXY or ALL_PROXY: cannot be used for {place}: {type(error).__name__}"]
        ) from error


def describe_proxy(base_url: str) -> str:
    """`` through the proxy …`` for messages when requests take one, without its credentials."""
    if is_direct(base_url):
        return ""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(urlsplit(base_url).scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(urlsplit(base_url).hostname or ""):
        return ""
    return f" through the proxy {shown_place(proxy if '://' in proxy else f'http://{proxy}')}"


def is_direct(base_url: str) -> bool:
    """True for what no proxy leads to."""
    return is_loopback(base_url) or urlsplit(base_url).scheme == "file"


def is_loopback(url: str) -> bool:
    """True for ``localhost`` and addresses of this machine's loopback."""
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


class _Limited(httpx2.SyncByteStream):
    """A body that ends in time. The rest of a long or slow error body is left away; its status says enough."""

    def __init__(self, stream: httpx2.SyncByteStream, status: int, left_s: float, network: Any) -> None:
        self._stream, self._left_s, self._network = stream, left_s, network
        self._is_reply = status == 200

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        with _hang_up_after(self._left_s, self._network) as hung_up:
            try:
                for part in self._stream:
                    size += len(part)
                    if self._is_reply and size > MAX_REPLY_BYTES:
                        raise ReplyTooLong
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


def parse_model_ids(body: bytes) -> list[str] | None:
    """Names in a list of models; None where it is none."""
    try:
        listing = json.loads(body)
        if "models" in listing:
            return [str(model["name"]).removeprefix("models/") for model in listing["models"]]
        return [str(model["id"]) for model in listing["data"]]
    except (ValueError, KeyError, TypeError):
        return None


def parse_context(body: bytes, model: str) -> int | None:
    """Tokens of a model's window, by a list of models; None where it does not tell."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        listing = json.loads(body)
        for each in [*(listing.get("data") or []), *(listing.get("models") or [])]:
            if model in (each.get("id"), str(each.get("name", "")).removeprefix("models/")):
                told = [(each | (each.get("meta") or {})).get(name) for name in _CONTEXT]
                return next((tokens for tokens in told if isinstance(tokens, int) and tokens > 0), None)
    return None


_CONTEXT = ("max_model_len", "n_ctx", "context_length", "context_window", "max_context_length", "inputTokenLimit")
"""Names that servers have for it: vLLM and SGLang, llama.cpp, OpenRouter and Together, Groq, Mistral, Gemini."""

FAILURES = (ReplyTooLong, BadStatus, httpx2.HTTPError, httpx2.InvalidURL)
"""Everything that an attempt may raise."""


def classify_failure(error: Exception, timeout_s: float) -> Fault:
    """The fault of an attempt that was given ``timeout_s``."""
    if isinstance(error, ReplyTooLong):
        return Fault("malformed", 200, f"a reply of more than {MAX_REPLY_BYTES} bytes")
    if isinstance(error, BadStatus):
        return _classify_status(error.status, error.text, error.headers)
    if isinstance(error, httpx2.TimeoutException):
        return _classify_timeout(error, timeout_s)
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, (httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.LocalProtocolError)):
        return Fault("bad_request", None, text)
    if isinstance(error, httpx2.DecodingError):
        return Fault("malformed", 200, text)
    return Fault("network", None, text, sent=not isinstance(error, httpx2.ConnectError))


def _classify_status(status: int, text: str, headers: Mapping[str, str]) -> Fault:
    if 300 <= status < 400:
        text = f"redirect to {shown_place(headers.get('location'))}, which is not followed"
    return Fault(classify_status(status, text), status, text, parse_retry_after(headers, body=text))


def _classify_timeout(reason: httpx2.TimeoutException, timeout_s: float) -> Fault:
    """No connection is a fault of the network; a late answer may also mean that the run is over."""
    if isinstance(reason, httpx2.ConnectTimeout):
        return Fault("network", None, f"timeout: no connection within {min(timeout_s, CONNECT_S):g} s", sent=False)
    what = str(reason) if "slowly" in str(reason) else f"no answer within {timeout_s:g} s"
    return Fault("network", None, f"timeout: {what}", slow=True)


def _text(response: httpx2.Response) -> str:
    """The body of an error response; with a broken one its status is known all the same."""
    try:
        return response.read().decode("utf-8", "replace")
    except (httpx2.HTTPError, httpx2.StreamError, UnicodeError) as error:
        return f"unreadable body ({type(error).__name__})"
