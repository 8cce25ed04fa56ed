"""Errors of the SDK and of its HTTP library as faults of the error policy."""

from __future__ import annotations

from collections.abc import Mapping

import httpx2
import openai

from automedbench.base.endpoint.api_policy import Fault, classify_status, retry_after
from automedbench.base.endpoint.keys import shown_place
from automedbench.base.endpoint.transport import CONNECT_S, MAX_REPLY_BYTES, TooLong

FAILURES = (TooLong, openai.APIError, httpx2.HTTPError, httpx2.InvalidURL)
"""Everything that an attempt may raise."""


def fault_of(error: Exception, timeout_s: float) -> Fault:
    """What was wrong with an attempt that was given ``timeout_s``."""
    if isinstance(error, TooLong):
        return Fault("malformed", 200, f"a reply of more than {MAX_REPLY_BYTES} bytes")
    if isinstance(error, openai.APIStatusError):
        return _of_status(error.status_code, _text(error.response), error.response.headers)
    # The SDK wraps what happens while it sends; what happens while the body is read comes as it is.
    reason = (error.__cause__ or error) if isinstance(error, openai.APIError) else error
    if isinstance(reason, httpx2.TimeoutException):
        return _of_time_out(reason, timeout_s)
    text = f"{type(reason).__name__}: {reason}"
    if isinstance(reason, (httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.LocalProtocolError)):
        return Fault("bad_request", None, text)
    if isinstance(reason, httpx2.DecodingError):
        return Fault("malformed", 200, text)
    return Fault("network", None, text)


def _of_status(status: int, text: str, headers: Mapping[str, str]) -> Fault:
    if 300 <= status < 400:
        text = f"redirect to {shown_place(headers.get('location'))}, which is not followed"
    return Fault(classify_status(status, text), status, text, retry_after(headers))


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
        return response.text
    except (httpx2.HTTPError, httpx2.StreamError, UnicodeError) as error:
        return f"unreadable body ({type(error).__name__})"
