"""What both clients make of a URL, of an answer, and of a failed connection. Pure."""

from __future__ import annotations

import os
import ssl
from typing import TypeVar
from urllib import parse

import httpx2
import msgspec

from duepoint import errors, tlsrules
from duepoint.client import calls, problems

AnswerT = TypeVar("AnswerT")


def checked_server(url: str) -> str:
    """The URL without a slash at its end; raises ValueError where it is none."""
    example = "write one such as https://duepoint-api.duepoint-system.svc:8443"
    try:
        parts = parse.urlsplit(url)
        _ = parts.port, httpx2.URL(url)
    except (ValueError, httpx2.InvalidURL) as error:
        raise ValueError(f"{errors.quoted(url)} is no URL ({error}); {example}") from None
    is_text = url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_text:
        raise ValueError(f"{errors.quoted(url)} is no URL of a server; {example}")
    if parts.username or parts.password or parts.query or parts.fragment:
        # Not repeated: it may hold a password.
        raise ValueError(f"the URL of the API has more than scheme, host, port and path; {example}")
    return url.rstrip("/")


def tls_context(server: str, ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """What a client of this server verifies with; raises OSError where the file cannot be read.

    Authorities of the system are read for ``https`` only: that takes 50 ms, which each command of
    a shell would pay.
    """
    if ca_file is None and server.startswith("http:"):
        return tlsrules.trusting_no_authority()
    return tlsrules.client_context(cafile=ca_file)


def decoded(call: calls.ApiCall[AnswerT], body: bytes) -> AnswerT:
    """The answer's JSON as the call's type; raises ServiceUnreachable where it is none."""
    if call.answer is type(None):
        return None
    try:
        return msgspec.json.decode(body, type=call.answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise problems.ServiceUnreachable(
            f"{call.method} {call.path}: the answer is not what a Duepoint API says ({error})"
        ) from error


def unreachable(method: str, server: str, error: httpx2.HTTPError) -> problems.ServiceUnreachable:
    """What a failure of the connection means to the caller."""
    why = str(error) or type(error).__name__
    kind = "no answer in time" if isinstance(error, httpx2.TimeoutException) else "no answer"
    return problems.ServiceUnreachable(f"{method} at {server}: {kind} ({why[:200]})")
