"""Who we are to the API server, and where it is.

In a cluster: the files that the kubelet mounts and rotates, read again every minute and after a
401. Outside: a kubeconfig. One that carries a token, a token file, a client certificate or a
password is read here; exec plugins and identity providers are left to the official ``kubernetes``
package, which is imported only then because it costs 35 MB. A login is a value: its users
ask again each time instead of keeping it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from duepoint import errors, tlsrules

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Tokens rotate at 80 % of their life, at least 10 minutes: a minute is soon enough.
TOKEN_AGE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Everything that a client of any kind needs to log in.

    Attributes:
        server: URL without a trailing slash.
        token: bearer token, or None where a certificate speaks for us.
        namespace: the one that the credentials belong to or the context names.
        ca_file: PEM file of the authority, or None for the system's own (see also ca_data).
        ca_data: PEM text of the authority, or None.
        certificate_file: PEM file of our certificate, or None.
        key_file: PEM file of its key, or None.
        server_name: name to verify instead of the URL's host, or None.
        insecure: the server's certificate is not verified.
        proxy: URL of an HTTP proxy, or None.
        ssl: the context made of the above; None for a plain http URL.
    """

    server: str
    token: str | None = field(default=None, repr=False)
    namespace: str = "default"
    ca_file: str | None = None
    ca_data: str | None = field(default=None, repr=False)
    certificate_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    insecure: bool = False
    proxy: str | None = None
    ssl: ssl.SSLContext | None = field(default=None, repr=False, compare=False)


class Credentials(Protocol):
    """Where logins come from."""

    def known(self) -> Login | None:
        """The login to use now, where it is known already."""
        ...

    async def login(self) -> Login:
        """The login to use now."""
        ...

    async def renew(self) -> bool:
        """Read everything again after a 401; False where nothing has changed."""
        ...


class FixedCredentials:
    """A login that does not change."""

    def __init__(self, login: Login) -> None:
        self._login = with_context(login)

    def known(self) -> Login | None:
        return self._login

    async def login(self) -> Login:
        return self._login

    async def renew(self) -> bool:
        return False


class FileToken:
    """A login whose token lives in a file that is rotated."""

    def __init__(
        self, login: Login, token_file: Path, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._token_file = token_file
        self._monotonic = monotonic
        self._login = replace(with_context(login), token=read_text(token_file))
        self._read_at = monotonic()

    def known(self) -> Login | None:
        is_fresh = self._monotonic() - self._read_at < TOKEN_AGE_SECONDS
        return self._login if is_fresh else None

    async def login(self) -> Login:
        if self.known() is None:
            self._read_again()
        return self._login

    async def renew(self) -> bool:
        return self._read_again()

    def _read_again(self) -> bool:
        self._read_at = self._monotonic()
        try:
            token = read_text(self._token_file)
        except errors.InvalidSetting:
            return False  # in the middle of a rotation; the old one may still serve
        changed = token != self._login.token
        self._login = replace(self._login, token=token)
        return changed


class LoadedCredentials:
    """A login that has to be made, for example by an exec plugin."""

    def __init__(self, load: Callable[[], Login]) -> None:
        self._load = load
        self._login: Login | None = None
        self._lock = asyncio.Lock()

    def known(self) -> Login | None:
        return self._login

    async def login(self) -> Login:
        async with self._lock:
            if self._login is None:
                self._login = with_context(await asyncio.to_thread(self._load))
            return self._login

    async def renew(self) -> bool:
        before = self._login
        self._login = None
        return await self.login() != before


def in_cluster(
    environment: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT_FOLDER
) -> Credentials | None:
    """The credentials of our own Pod, or None where this is none."""
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (folder / "token").exists():
        return None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    login = Login(
        server=server,
        ca_file=str(folder / "ca.crt"),
        namespace=read_text(folder / "namespace") or "default",
    )
    return FileToken(login, folder / "token")


def with_context(login: Login) -> Login:
    """The login with its TLS context; raises InvalidSetting where a file is no certificate."""
    if not login.server.startswith("https://"):
        return login
    try:
        context = tlsrules.client_context(cafile=login.ca_file, cadata=login.ca_data)
        if login.certificate_file:
            context.load_cert_chain(login.certificate_file, login.key_file)
    except (OSError, ValueError) as error:
        raise errors.InvalidSetting(
            "KUBECONFIG", f"certificates for {login.server} cannot be read: {error}"
        ) from error
    if login.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return replace(login, ssl=context)


def read_text(path: Path) -> str:
    """Content of a small file without surrounding blanks; raises InvalidSetting."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidSetting("KUBECONFIG", f"cannot read {path}: {error}") from error
