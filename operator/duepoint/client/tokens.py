"""Where the bearer token of a request comes from.

A token in a file is read again after a minute, because the kubelet replaces the token of a Pod's
ServiceAccount before it expires, and once more after a 401. No token is ever part of a message or
of a ``repr``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

#: Tokens of Pods are replaced at 80 % of their life, at least 10 minutes.
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
        """The token to send now."""
        return self._token

    def renew(self) -> bool:
        """Called after a 401; whether ``current`` is another one now."""
        return False


class TokenInFile(TokenSource):
    """A token in a file that another program replaces.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no token.
    """

    def __init__(self, path: Path, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(path.read_text())
        self._path = path
        self._monotonic = monotonic
        self._read_at = monotonic()

    def current(self) -> str:
        if self._monotonic() - self._read_at >= FRESH_SECONDS:
            self.renew()
        return self._token

    def renew(self) -> bool:
        self._read_at = self._monotonic()
        try:
            read = TokenSource(self._path.read_text()).current()
        except (OSError, ValueError):
            return False  # in the middle of a replacement; the old one may still serve
        changed, self._token = read != self._token, read
        return changed


def of_environment(
    environment: Mapping[str, str], *, pod_file: Path = POD_TOKEN_FILE
) -> TokenSource | None:
    """``DUEPOINT_API_TOKEN``, ``DUEPOINT_API_TOKEN_FILE``, or the Pod's own; None where none is.

    Raises:
        OSError, ValueError: what is named there is no token.
    """
    if token := environment.get("DUEPOINT_API_TOKEN"):
        return TokenSource(token)
    if path := environment.get("DUEPOINT_API_TOKEN_FILE"):
        return TokenInFile(Path(path))
    return TokenInFile(pod_file) if pod_file.exists() else None
