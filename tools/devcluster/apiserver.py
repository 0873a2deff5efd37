"""A small JSON client for the API server, enough to set up a cluster and to test it.

It blocks, verifies the server against the cluster's own authority, and acts as one user. The
product's own client (`duepoint.kube.api`) must be tested against a different one.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, TypeAlias

from duepoint import tlsrules

TIMEOUT_SECONDS = 30.0

Json: TypeAlias = Any  # callers check what the server answers


class ApiError(Exception):
    """The API server refused; `code` is the HTTP status, the text its message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Client:
    """A client that acts as one user. Unreachable servers raise OSError, refusals ApiError."""

    def __init__(self, server: str, ca_file: Path, token: str) -> None:
        self._server = server
        self._token = token
        self._context = tlsrules.client_context(cafile=ca_file)

    def get(self, path: str) -> Json:
        return self.request("GET", path)

    def post(self, path: str, body: object) -> Json:
        return self.request("POST", path, body)

    def delete(self, path: str) -> Json:
        return self.request("DELETE", path)

    def apply(self, path: str, body: object) -> Json:
        """Apply the whole object on the server side, taking over fields from earlier appliers."""
        query = "?fieldManager=duepoint-tools&force=true"
        return self.request("PATCH", path + query, body, "application/apply-patch+yaml")

    def request(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> Json:
        """Send a request and return the decoded answer: JSON, or the text of, say, /readyz."""
        request = urllib.request.Request(
            self._server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": content_type},
        )
        try:
            with urllib.request.urlopen(
                request, timeout=TIMEOUT_SECONDS, context=self._context
            ) as answer:
                return _decoded(answer.read())
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise ApiError(refusal.code, _message(refusal.read())) from None

    def is_ready(self) -> bool:
        try:
            return bool(self.get("/readyz") == "ok")
        except (OSError, ApiError):
            return False


def _decoded(text: bytes) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # not JSON, or nested deeper than Python reads
        return text.decode()


def _message(text: bytes) -> str:
    answer = _decoded(text)
    return str(answer.get("message", answer)) if isinstance(answer, dict) else str(answer)
