"""Who we are to the API server, and where it is.

In a cluster: the files that the kubelet mounts and rotates, read again every minute and after a
401. Outside: a kubeconfig. What it says plainly (token, token file, certificates, proxy) is read
here; paths inside it are relative to it. JSON, which is YAML too and which the development cluster
writes, needs no further parser; for other YAML PyYAML is imported, and for exec plugins and
identity providers the official ``kubernetes`` package, which costs 39 MB and 0.8 s of CPU. A login
is a value: its users ask again each time instead of keeping it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from duepoint import errors, faults, tlsrules
from duepoint.faults import FaultPoint

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
        ca_file, ca_data: PEM of the authority; None for the system's own.
        certificate_file, key_file: PEM files of our certificate.
        server_name: name to verify instead of the URL's host.
        insecure: the server's certificate is not verified.
        proxy: URL of an HTTP proxy.
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


class Credentials:
    """Where logins come from; this one has a login that does not change."""

    def __init__(self, login: Login) -> None:
        self._login = with_context(login)

    def known(self) -> Login | None:
        """The login to use now, where it is known already."""
        return self._login

    async def login(self) -> Login:
        """The login to use now."""
        return self._login

    async def renew(self) -> bool:
        """Read everything again after a 401; False where nothing has changed."""
        return False


class FileToken(Credentials):
    """A login whose token lives in a file that is rotated."""

    def __init__(
        self, login: Login, token_file: Path, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(replace(login, token=read_text(token_file)))
        self._token_file = token_file
        self._monotonic = monotonic
        self._read_at = monotonic()

    def known(self) -> Login | None:
        is_fresh = self._monotonic() - self._read_at < TOKEN_AGE_SECONDS
        return self._login if is_fresh else None

    async def login(self) -> Login:
        if self.known() is None:
            await self.renew()
        return self._login

    async def renew(self) -> bool:
        self._read_at = self._monotonic()
        try:
            token = read_text(self._token_file)
        except errors.InvalidSetting:
            return False  # in the middle of a rotation; the old one may still serve
        await faults.reach(FaultPoint.AFTER_TOKEN_READ)
        changed = token != self._login.token
        self._login = replace(self._login, token=token)
        return changed


class LoadedCredentials(Credentials):
    """A login that has to be made, for example by an exec plugin."""

    def __init__(self, load: Callable[[], Login]) -> None:
        self._load = load
        self._made: Login | None = None
        self._lock = asyncio.Lock()

    def known(self) -> Login | None:
        return self._made

    async def login(self) -> Login:
        async with self._lock:
            if self._made is None:
                self._made = with_context(await asyncio.to_thread(self._load))
            return self._made

    async def renew(self) -> bool:
        before, self._made = self._made, None
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


# -- kubeconfig ----------------------------------------------------------------------------------

#: Keys of a user entry that only the official package understands.
_SPECIAL = ("exec", "auth-provider")
#: Keys whose silent loss would give us another identity.
_UNSUPPORTED = ("username", "password", "as", "as-uid", "as-groups", "as-user-extra")


class _Broken(Exception):
    """The file does not say what it should."""


def found(
    path: Path | None, context: str | None, environment: Mapping[str, str] = os.environ
) -> Credentials:
    """The credentials to use: a given file, the Pod's own account, $KUBECONFIG, ~/.kube/config.

    Raises:
        errors.InvalidSetting: there are none.
    """
    if path is None and (own := in_cluster(environment)) is not None:
        return own
    if path is None:
        listed = environment.get("KUBECONFIG", "").split(os.pathsep)
        paths = [Path(part) for part in listed if part] or [Path.home() / ".kube" / "config"]
        path = next((each for each in paths if each.exists()), paths[0])
    if not path.exists():
        raise errors.InvalidSetting(
            "KUBECONFIG", f"no API server: not in a Pod, and there is no file {path}"
        )
    return of_kubeconfig(path, context)


def of_kubeconfig(path: Path, context: str | None = None) -> Credentials:
    """Credentials of a context, the current one by default; raises InvalidSetting."""
    try:
        return _of_context(path, context)
    except _Broken as error:
        raise errors.InvalidSetting("KUBECONFIG", f"{path}: {error}") from error


def _of_context(path: Path, context: str | None) -> Credentials:
    document = _parsed(path)
    name = context or document.get("current-context")
    if not name:
        raise _Broken("has no current-context; name one")
    chosen = _named(document, "contexts", name, "context")
    cluster = _named(document, "clusters", chosen.get("cluster"), "cluster")
    user = _named(document, "users", chosen.get("user"), "user") if chosen.get("user") else {}
    for key in _UNSUPPORTED:
        if user.get(key):
            raise _Broken(f"uses {key!r}, which is not supported; use a token or a certificate")
    if any(user.get(key) for key in _SPECIAL):
        return LoadedCredentials(lambda: _official(path, name, chosen))
    return _plain(path.parent, cluster, user, str(chosen.get("namespace") or "default"))


def _plain(
    folder: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], namespace: str
) -> Credentials:
    login = Login(
        server=str(cluster.get("server") or "").rstrip("/"),
        namespace=namespace,
        ca_file=_file(folder, cluster.get("certificate-authority")),
        ca_data=_data(cluster.get("certificate-authority-data")),
        server_name=cluster.get("tls-server-name") or None,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        proxy=cluster.get("proxy-url") or None,
        token=user.get("token") or None,
        certificate_file=_file(folder, user.get("client-certificate")),
        key_file=_file(folder, user.get("client-key")),
    )
    if not login.server.startswith(("https://", "http://")):
        raise _Broken("names no server of its cluster")
    if user.get("client-certificate-data"):
        # TLS contexts load a pair from files only: they exist for as long as that takes.
        with tempfile.TemporaryDirectory() as inline:  # mode 0700
            files = [Path(inline, name) for name in ("certificate", "key")]
            for file, name in zip(
                files, ("client-certificate-data", "client-key-data"), strict=True
            ):
                file.write_text(_data(user.get(name)) or "")
            certificate, key = map(str, files)
            return Credentials(replace(login, certificate_file=certificate, key_file=key))
    token_file = _file(folder, user.get("tokenFile"))
    if token_file and not login.token:
        return FileToken(login, Path(token_file))
    return Credentials(login)


def _official(path: Path, context: str, chosen: Mapping[str, Any]) -> Login:
    """The login that the official package makes of the context; blocks, may start a program."""
    try:
        from kubernetes import client, config  # noqa: PLC0415 - costs 35 MB, hardly ever needed
    except ModuleNotFoundError as missing:
        raise errors.InvalidSetting(
            "KUBECONFIG",
            f"{path}: context {context} logs in by a program or a provider, for which the package"
            " kubernetes is needed: pip install 'duepoint[login]'",
        ) from missing

    loaded = client.Configuration()
    try:
        load = config.load_kube_config
        load(str(path), context, client_configuration=loaded)  # type: ignore[no-untyped-call]
    except Exception as error:  # a plugin of the user's may raise anything
        raise errors.InvalidSetting(
            "KUBECONFIG", f"{path}: context {context} cannot log in: {error}"
        ) from error
    # The key was "authorization" before version 36 of the package.
    token = loaded.get_api_key_with_prefix("BearerToken", alias="authorization") or ""
    return Login(
        server=str(loaded.host).rstrip("/"),
        namespace=str(chosen.get("namespace") or "default"),
        token=token.removeprefix("Bearer ") or None,
        ca_file=loaded.ssl_ca_cert,
        certificate_file=loaded.cert_file,
        key_file=loaded.key_file,
        server_name=loaded.tls_server_name,
        insecure=not loaded.verify_ssl,
        proxy=loaded.proxy,
    )


def _parsed(path: Path) -> Mapping[str, Any]:
    text = read_text(path)
    try:
        document: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        import yaml  # noqa: PLC0415 - comes with the official package; JSON does without

        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise _Broken(f"is neither JSON nor YAML: {error}") from error
    if not isinstance(document, Mapping):
        raise _Broken("is no kubeconfig")
    return document


def _named(document: Mapping[str, Any], kind: str, name: object, part: str) -> Mapping[str, Any]:
    entries = document.get(kind)
    for entry in entries if isinstance(entries, Sequence) else ():
        if isinstance(entry, Mapping) and entry.get("name") == name:
            found = entry.get(part)
            return found if isinstance(found, Mapping) else {}
    raise _Broken(f"has no {part} named {errors.quoted(name)}")


def _file(folder: Path, name: object) -> str | None:
    return str(folder / str(name)) if name else None


def _data(encoded: object) -> str | None:
    if not encoded:
        return None
    try:
        return base64.b64decode("".join(str(encoded).split()), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise _Broken("holds certificate data that are no base64 text") from error
