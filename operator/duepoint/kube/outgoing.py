"""Where a login leads, and a request as it goes out to there.

What is the same in all requests of a login is written once. A token that was rotated goes over the
connections that are there; another server, or another certificate, has connections of its own.
Whatever would end a header early, or make two of one, is refused.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

from duepoint.kube import credentials, exchange


@dataclass(frozen=True, slots=True)
class Server:
    """Where a login leads.

    Attributes:
        base: what stands before each path.
        same: the headers of every request.
    """

    login: credentials.Login
    lines: exchange.Lines
    base: str
    same: str


def server_of(
    login: credentials.Login, agent: str, limits: exchange.Limits, *, before: Server | None
) -> Server:
    """The server of a new login; raises ValueError where no request can be made of it."""
    url = urllib.parse.urlsplit(login.server)
    host = url.netloc.rpartition("@")[2]
    same = f"Host: {host}\r\nUser-Agent: {agent}\r\n"
    if login.token:
        same += f"Authorization: Bearer {_plain(login.token, 'token')}\r\n"
    if before is not None and _lead_to_same(before.login, login):
        return Server(login, before.lines, url.path, same)
    if before is not None:
        before.lines.retire()
    place = exchange.Place(
        host=url.hostname or "",
        port=url.port or (80 if login.ssl is None else 443),
        tls=login.ssl,
        server_name=login.server_name,
    )
    return Server(login, exchange.Lines(place, limits), url.path, same)


def target(server: Server, path: str, query: Mapping[str, str] | None) -> str:
    """Path and query as they are asked for; raises ValueError where the path is none."""
    whole = server.base + path
    if query:
        whole += "?" + urllib.parse.urlencode(query)
    if " " in whole:
        raise ValueError("the path holds a blank")
    return _plain(whole, "path")


def content(
    server: Server, asked: str, *, accept: str, content_type: str, body: bytes | None
) -> bytes:
    """Head and body; ``asked`` is the verb and the target."""
    head = f"{asked} HTTP/1.1\r\n{server.same}Accept: {accept}\r\n"
    if body is None:
        return f"{head}\r\n".encode()
    head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _plain(text: str, what: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    raise ValueError(f"the {what} holds what cannot be sent")


def _lead_to_same(one: credentials.Login, other: credentials.Login) -> bool:
    same_name = (one.server, one.server_name) == (other.server, other.server_name)
    return same_name and one.ssl is other.ssl
