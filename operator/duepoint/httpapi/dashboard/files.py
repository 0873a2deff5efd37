"""Serves the files of the dashboard's pages, and the OpenAPI document.

Everything that a page needs comes from here: the Content-Security-Policy allows no script, style or
request of another origin, no inline script or style, and no frame around the page. Browsers
revalidate each file and get 304 while it is the same, so a page never runs with half an upgrade.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Final

from duepoint.httpapi.problems import OperationProblem
from duepoint.net.httpserver import Headers, HttpRequest, HttpResponse

PREFIX: Final = "/dashboard/"
_PACKAGE: Final = "duepoint.httpapi.dashboard"
_FOLDER: Final = "web"
INDEX: Final = "index.html"

TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "json": "application/json",
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


class WebFiles:
    """The files by path: the OpenAPI document, and those of the dashboard if there is one."""

    def __init__(self, document: bytes, *, has_dashboard: bool) -> None:
        self._by_path = {"/openapi.json": _file("json", document)}
        self._redirected = ("/", PREFIX[:-1]) if has_dashboard else ()
        if has_dashboard:
            for entry in (resources.files(_PACKAGE) / _FOLDER).iterdir():
                if (kind := entry.name.rpartition(".")[2]) in TYPES:
                    self._by_path[PREFIX + entry.name] = _file(kind, entry.read_bytes())
            self._by_path[PREFIX] = self._by_path[PREFIX + INDEX]

    def answer(self, request: HttpRequest, path: str) -> HttpResponse | None:
        """Return the file of a path; None if the path is not one of a file.

        Raises:
            OperationProblem: NotFound, MethodNotAllowed.
        """
        found, is_redirected = self._by_path.get(path), path in self._redirected
        if found is None and not is_redirected and not path.startswith(PREFIX):
            return None
        if request.method not in ("GET", "HEAD"):
            headers = (("Allow", "GET, HEAD"),)
            raise OperationProblem("MethodNotAllowed", "GET it", headers=headers)
        if is_redirected:  # relative to the requested path: a proxy may have cut off a prefix
            return HttpResponse(302, (("Location", PREFIX[1:]), ("Cache-Control", "no-store")))
        if found is None:
            raise OperationProblem("NotFound", "the dashboard has no such file")
        known = request.headers.get("if-none-match", "").split(",")
        if dict(found.headers)["ETag"] in (each.strip().removeprefix("W/") for each in known):
            return HttpResponse(304, found.headers)
        return found


def _file(kind: str, body: bytes) -> HttpResponse:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers: Headers = (
        ("Content-Type", TYPES[kind]),
        ("ETag", tag),
        ("Cache-Control", "no-cache"),
        *_SECURITY,
    )
    return HttpResponse(200, headers, body)
