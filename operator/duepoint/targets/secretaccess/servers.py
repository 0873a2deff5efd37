"""Connections to servers that a Secret describes: another Redis, or Kafka's brokers.

Secrets are read at delivery time through the worker's cache, so a rotated password is used within a
minute, and at once after a refusal (``forget``). A Secret that cannot be read or used is a
``Trouble`` with the field, the key and the remedy; correcting it is enough. No value of a Secret is
ever shown: ``SecretConnection.redacted`` cuts them out of texts from servers and libraries. Our own
sentences stay whole, or a user called ``rw`` would blot out every remedy.

Connections go through the guarded dialler (``ServerDialler``). A host that is a Service of the
Schedule's own namespace (``redis``, ``redis.NS.svc``) is looked up at the API server, as a
webhook's ``service`` is.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from duepoint.kube import secrets
from duepoint.net import dialling, egressrules, httpclient
from duepoint.schedules import actions
from duepoint.targets import endpoints, target
from duepoint.targets.secretaccess import references, tlscontexts

#: Longest value that is read.
_MOST_BYTES = 64 * 1024
_PEM = ("ca.crt", "tls.crt", "tls.key")
#: Characters of a server's name or address.
_HOST = re.compile(r"[\w.:%-]{1,253}")
_MAX_PORT = 65_535
_SUFFIXES = ("", ".svc", ".svc.cluster.local")
#: Keys whose values are redacted in every text that is shown.
_UNSPEAKABLE = ("password", "url", "username")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretConnection:
    """A connection as a Secret describes it.

    Attributes:
        to: the reference to the Secret.
        values: the requested texts that the Secret has.
        digest: hash of all that was read; another digest needs another connection.
        data: the Secret itself; its annotations say where its values may go.
        pem: certificates and key, as they are in the Secret.
        tls: the context for a TLS server; ``ConnectionReader.secured`` sets it.
    """

    to: references.Reference
    values: Mapping[str, str] = field(repr=False)
    digest: bytes = field(repr=False)
    data: secrets.Data = field(repr=False)
    pem: Mapping[str, bytes] = field(repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    unspeakable: tuple[str, ...] = field(default=(), repr=False)

    @property
    def consent(self) -> str | None:
        """Return the receivers that the Secret's owner allows; None = none."""
        return self.data.annotations.get(references.SEND_TO)

    def redacted(self, text: str) -> str:
        """Return the text as one line, without the Secret's values."""
        return target.excerpt(text.encode(errors="replace"), (), self.unspeakable)

    def require_consent(self, hosts: Iterable[tuple[str, int]]) -> None:
        """Raise Unread unless the Secret may be used with each of these servers."""
        for host, port in hosts:
            references.require_consent(self.to, self.data, references.Receiver(host, port))

    def require_server(self, host: str, port: int) -> None:
        """Raise OSError unless the Secret may be used with this server, named by another one."""
        require_server(host, port)
        if not references.may_send(self.data.annotations, references.Receiver(host, port)):
            to = self.to
            withheld = to.missing(
                f"a server that it names is not allowed: the annotation {references.SEND_TO} of "
                f"{to.object} does not list it; the Secret's owner allows it with: "
                f"kubectl annotate --overwrite secret {to.name} -n {to.namespace} "
                f"{references.SEND_TO}=HOSTS, the hosts of all its servers"
            )
            raise ServerRefused(withheld.trouble)


class ConnectionReader:
    """Reads connections from Secrets."""

    def __init__(self, objects: references.Objects, reader_role: str) -> None:
        self._objects = objects
        self._keys = references.KeyReader(objects, reader_role)
        self._contexts = tlscontexts.TlsContexts()

    async def read(
        self, path: str, namespace: str, name: str, wanted: tuple[str, ...], required: str
    ) -> SecretConnection:
        """Return the connection that this Secret describes; raises Unread.

        Args:
            path: the field that names the Secret.
            wanted: keys with texts to read, besides ``ca.crt``, ``tls.crt`` and ``tls.key``.
            required: the one of them that must exist.
        """
        to = references.secret(path, namespace, name)
        found = await self._keys.whole(to)
        references.require_any_consent(to, found)
        await self._keys.content(to, required)  # raises if it is missing
        data = found.values
        texts: dict[str, str] = {}
        hashed = hashlib.sha256(repr((to.namespace, to.name)).encode())
        for key in (*wanted, *_PEM):
            hashed.update(hashlib.sha256(data.get(key, b"")).digest())
            if key in wanted and key in data:
                texts[key] = _text(to, key, data[key])
        return SecretConnection(
            to=to,
            values=texts,
            digest=hashed.digest(),
            data=found,
            pem={key: data[key] for key in _PEM if key in data},
            unspeakable=tuple(texts[key] for key in _UNSPEAKABLE if texts.get(key)),
        )

    def forget(self, namespace: str) -> None:
        """Read this namespace's Secrets again next time, because one of them did not work."""
        self._objects.forget(namespace)

    async def secured(self, plain: SecretConnection) -> SecretConnection:
        """Return the connection with its TLS context, which is cached by the Secret's content."""
        to, pem = plain.to, plain.pem
        certificate, key = pem.get("tls.crt"), pem.get("tls.key")
        if (certificate is None) != (key is None):
            raise to.unusable("tls.crt", "needs tls.key beside it, and the other way round")
        wanted = tlscontexts.TlsMaterial(
            owner=(to.namespace, False), ca=pem.get("ca.crt"), certificate=certificate, key=key
        )
        try:
            context = await self._contexts.get(wanted)
        except tlscontexts.Unusable as error:
            in_key = "ca.crt" if error.part == "ca" else "tls.crt"
            raise to.unusable(in_key, str(error)) from None
        return dataclasses.replace(plain, tls=context)


def _text(to: references.Reference, key: str, value: bytes) -> str:
    """Return one line of text; drop line breaks around it as accidents."""
    try:
        text = value[:_MOST_BYTES].decode().strip("\r\n")
    except UnicodeDecodeError:
        raise to.unusable(key, "is binary; write text") from None
    if key != "password":
        text = text.strip()
    if any(ord(one) < 0x20 or ord(one) == 0x7F for one in text):
        raise to.unusable(key, "is not one line of text")
    return text


# -- dialling --------------------------------------------------------------------------------------


class ServerRefused(OSError):
    """The egress guard or the owner forbids this server, or its Service cannot be resolved.

    Attributes:
        trouble: why; ``final`` if only an edit or the operator's settings help.
    """

    def __init__(self, trouble: target.Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


def require_server(host: str, port: int) -> None:
    """Raise OSError unless these could be the name and port of a server.

    A server that names others (a node of a Redis Cluster, a broker) may send any text. Neither this
    error nor another message (``unnamed``) repeats it.
    """
    if not _HOST.fullmatch(host) or not 1 <= port <= _MAX_PORT:
        raise OSError("the server that it names has no name, or no port from 1 to 65535")


def unnamed(error: OSError) -> OSError:
    """Return the error of a server that another one named, without its name or address.

    The server chose that name, and the reader must not learn what it resolves to here.
    """
    refused = "a server that it names is not allowed"
    if isinstance(error, dialling.Blocked):
        return dialling.Blocked(refused)
    if isinstance(error, ServerRefused):
        message = refused if error.trouble.final else "a server that it names cannot be found now"
        return ServerRefused(dataclasses.replace(error.trouble, message=message))
    return OSError(f"a server that it names cannot be used: {type(error).__name__}")


class ServerDialler:
    """Opens sockets to servers that Schedules name, or that such a server names."""

    def __init__(self, dialler: dialling.Dialler, services: endpoints.ServiceCache) -> None:
        self._dialler = dialler
        self._services = services

    async def connect(self, namespace: str, host: str, port: int, *, tls: bool) -> socket.socket:
        """Return a connected socket for a Schedule of this namespace.

        Raises ServerRefused, dialling.Blocked and other OSErrors.
        """
        require_server(host, port)
        scheme = "https" if tls else "http"
        route = egressrules.Route(scheme=scheme)
        if (name := _service_of(namespace, host)) is not None:
            service = actions.ServiceRef(name=name, port=port, scheme=scheme)
            webhook = actions.WebhookAction(service=service)
            located = await endpoints.locate(self._services, namespace, webhook)
            if isinstance(located, target.Trouble):
                raise ServerRefused(located)
            route = located.route
        endpoint = httpclient.Endpoint(host=host, port=port, route=route, namespace=namespace)
        async with asyncio.timeout(httpclient.CONNECT_SECONDS):
            return await self._dialler.connect(endpoint)


def _service_of(namespace: str, host: str) -> str | None:
    """Return the Service of this namespace that the host names, if any."""
    name, dot, rest = host.lower().rstrip(".").partition(".")
    if not dot and not name.replace(".", "").isdecimal() and ":" not in name:
        return name if name != "localhost" else None
    return name if rest in {f"{namespace}{suffix}" for suffix in _SUFFIXES} else None
