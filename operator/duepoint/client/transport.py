"""URLs, tokens and retries of both clients. Pure.

Every request of this client can be retried. Reads change nothing. A PUT, PATCH or DELETE without
conditions and without a ``delay`` leads to the same state again. Every other change carries an
``Idempotency-Key``, with which the API answers a retry as it answered the first attempt. So only
the kind of failure decides whether to retry. The wait doubles with each attempt and is drawn evenly
from its upper half, so that clients that failed together do not come back together. It is never
shorter than the API's ``Retry-After``.

A token file is read again after a minute, because the kubelet replaces the token of a Pod's
ServiceAccount before it expires, and once more after a 401. No token is ever part of a message or
of a ``repr``.
"""

from __future__ import annotations

import os
import random
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib import parse

import httpx2

from duepoint import errors, tlsrules
from duepoint.client import problems


def checked_server(url: str) -> str:
    """Return the URL without a slash at its end; raises ValueError if it is not valid."""
    example = "write one such as https://duepoint-api.duepoint-system.svc:8443"
    try:
        parts = parse.urlsplit(url)
        _ = parts.port, httpx2.URL(url)
    except (ValueError, httpx2.InvalidURL) as error:
        raise ValueError(f"{errors.quoted(url)} is not a URL ({error}); {example}") from None
    is_text = url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_text:
        raise ValueError(f"{errors.quoted(url)} is not a URL of a server; {example}")
    if parts.username or parts.password or parts.query or parts.fragment:
        # The message does not repeat the URL: it may contain a password.
        raise ValueError(f"the URL of the API has more than scheme, host, port and path; {example}")
    return url.rstrip("/")


def tls_context(server: str, ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """Return the TLS context for a server; raises OSError if the file cannot be read.

    The CAs of the system are loaded for ``https`` only: that takes 50 ms, which would slow down
    every command in a shell.
    """
    if ca_file is None and server.startswith("http:"):
        return tlsrules.trusting_no_authority()
    return tlsrules.client_context(cafile=ca_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often and for how long to retry a request.

    Attributes:
        attempts: the most attempts, including the first; 1 = no retry.
        first_seconds: the longest wait after the first attempt; it doubles from there.
        longest_seconds: the longest wait between two attempts, unless the API asks for more.
        total_seconds: no attempt begins later than this after the first one began.
    """

    attempts: int = 6
    first_seconds: float = 0.2
    longest_seconds: float = 10.0
    total_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts: {self.attempts}; write 1 or more")
        if min(self.first_seconds, self.longest_seconds, self.total_seconds) < 0:
            raise ValueError("seconds of Retries are 0 or more")


#: No retries.
NEVER = Retries(attempts=1)


def is_passing(error: problems.ClientError) -> bool:
    """Whether the same request may succeed later."""
    return isinstance(error, (problems.ServiceBusy, problems.ServiceUnreachable))


class Attempts:
    """The attempts of one request: how many, and since when."""

    def __init__(self, retries: Retries, token: TokenSource | None) -> None:
        self._retries = retries
        self._token = token
        self._made, self._began = 0, time.monotonic()

    def after(self, error: problems.ClientError) -> float:
        """Return how many seconds to wait before a retry; raises the error if there is no retry."""
        self._made += 1
        if isinstance(error, problems.AccessDenied) and error.status == 401:
            token, self._token = self._token, None  # renew once per request
            if token is not None and token.renew():
                return 0.0
        rules = self._retries
        if self._made >= rules.attempts or not is_passing(error):
            raise error
        longest = min(rules.longest_seconds, rules.first_seconds * 2.0 ** min(self._made - 1, 60))
        wait = longest / 2 * (1 + random.random())  # noqa: S311 - nobody gains by guessing it
        wait = max(wait, getattr(error, "retry_after_seconds", None) or 0.0)
        if time.monotonic() - self._began + wait > rules.total_seconds:
            raise error
        return wait


#: When to read a token's file again; tokens live at least 10 minutes and are replaced at 80 %.
FRESH_SECONDS = 60.0
#: The token of a Pod's own ServiceAccount.
POD_TOKEN_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class TokenSource:
    """A token that does not change."""

    def __init__(self, token: str) -> None:
        if not token.strip() or not token.isascii() or not token.strip().isprintable():
            raise ValueError("the token is empty, or has characters that no token has")
        self._token = token.strip()

    def current(self) -> str:
        """Return the token to send now."""
        return self._token

    def renew(self) -> bool:
        """Renew the token after a 401; return whether ``current`` has changed."""
        return False


class TokenInFile(TokenSource):
    """A token in a file that another program replaces.

    Raises:
        OSError: the file cannot be read.
        ValueError: it does not contain a token.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path.read_text())
        self._path = path
        self._read_at = time.monotonic()

    def current(self) -> str:
        if time.monotonic() - self._read_at >= FRESH_SECONDS:
            self.renew()
        return self._token

    def renew(self) -> bool:
        self._read_at = time.monotonic()
        try:
            read = TokenSource(self._path.read_text()).current()
        except (OSError, ValueError):
            return False  # the file is being replaced; the old token may still work
        changed, self._token = read != self._token, read
        return changed


def of_environment(
    environment: Mapping[str, str], *, pod_file: Path = POD_TOKEN_FILE
) -> TokenSource | None:
    """Return the token of ``DUEPOINT_API_TOKEN`` or ``..._FILE``, or the Pod's own; None if none.

    Raises:
        OSError, ValueError: the file cannot be read, or the token is not valid.
    """
    if token := environment.get("DUEPOINT_API_TOKEN"):
        return TokenSource(token)
    if path := environment.get("DUEPOINT_API_TOKEN_FILE"):
        return TokenInFile(Path(path))
    return TokenInFile(pod_file) if pod_file.exists() else None
