"""Serves the files of the dashboard's pages.

Everything that a page needs comes from here: the Content-Security-Policy allows no script, style or
request of another origin, no inline script or style, and no frame around the page. Browsers
revalidate each file and get 304 while it is the same, so a page never runs with half an upgrade.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Final, NamedTuple

from duepoint.httpapi.problems import OperationProblem
from duepoint.net.requests import Headers, HttpRequest, HttpResponse

PREFIX: Final = "/dashboard/"
_PACKAGE: Final = "duepoint.httpapi.dashboard"
_FOLDER: Final = "web"
INDEX: Final = "index.html"

TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_SECURITY: Final[Headers] = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
)


class WebFile(NamedTuple):
    """A file with its response headers."""

    body: bytes
    headers: Headers
    tag: str


class WebFiles:
    """The files by name."""

    def __init__(self) -> None:
        folder = resources.files(_PACKAGE) / _FOLDER
        self.by_name = {
            entry.name: _read(entry.name, entry.read_bytes())
            for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
            if entry.name.rpartition(".")[2] in TYPES
        }

    def answer(self, request: HttpRequest, path: str) -> HttpResponse | None:
        """Return the file of a path; None if the path is not one of the dashboard's.

        Raises:
            OperationProblem: NotFound, MethodNotAllowed.
        """
        if path in ("/", PREFIX[:-1]):
            self._check_method(request)
            # Relative to the requested path: a proxy may have cut off a prefix.
            target = PREFIX[1:]
            return HttpResponse(302, (("Location", target), ("Cache-Control", "no-store")))
        if not path.startswith(PREFIX):
            return None
        self._check_method(request)
        found = self.by_name.get(path.removeprefix(PREFIX) or INDEX)
        if found is None:
            raise OperationProblem("NotFound", "the dashboard has no such file")
        if found.tag in _tags(request.headers.get("if-none-match", "")):
            return HttpResponse(304, found.headers)
        return HttpResponse(200, found.headers, found.body)

    @staticmethod
    def _check_method(request: HttpRequest) -> None:
        if request.method not in ("GET", "HEAD"):
            headers = (("Allow", "GET, HEAD"),)
            raise OperationProblem("MethodNotAllowed", "GET it", headers=headers)


def _read(name: str, body: bytes) -> WebFile:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers: Headers = (
        ("Content-Type", TYPES[name.rpartition(".")[2]]),
        ("ETag", tag),
        ("Cache-Control", "no-cache"),
        *_SECURITY,
    )
    return WebFile(body, headers, tag)


def _tags(header: str) -> list[str]:
    return [each.strip().removeprefix("W/") for each in header.split(",")]
