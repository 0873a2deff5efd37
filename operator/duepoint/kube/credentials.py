"""The credentials for the API server, and its address.

The sources are those of kubectl: a given kubeconfig, the files of ``$KUBECONFIG``, or
``~/.kube/config``. If none of them exists, we use the files that the kubelet mounts into a Pod and
rotates; these are read again every minute and after a 401. Several files count as one: the first of
two entries with one name is used. Plain settings (token, token file, certificates, proxy) are read
here; paths inside a file are relative to it. JSON is YAML, too, and needs no further parser; the
development cluster writes it. For other YAML we import PyYAML, and for exec plugins and identity
providers the official ``kubernetes`` package, which costs 39 MB and 0.8 s of CPU. A login is a
value: its users ask for it each time instead of keeping it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import difflib
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from duepoint import errors, faults, tlsrules
from duepoint.faults import FaultPoint

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Tokens rotate at 80 % of their life, which is at least 10 minutes: a minute is soon enough.
TOKEN_AGE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Everything that a client of any kind needs to log in.

    Attributes:
        server: URL without a trailing slash.
        token: the bearer token; None = a certificate identifies us.
        namespace: the namespace of the credentials or of the context.
        ca_file, ca_data: PEM of the authority; None = the system's authorities.
        certificate_file, key_file: PEM files of our certificate.
        server_name: name to verify instead of the URL's host.
        insecure: whether to skip the verification of the server's certificate.
        proxy: URL of an HTTP proxy.
        ssl: the TLS context of these settings; None for a plain http URL.
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
    """A source of logins; this one has a login that does not change."""

    def __init__(self, login: Login) -> None:
        self._login = with_context(login)

    def known(self) -> Login | None:
        """Return the login to use now, if it is already known."""
        return self._login

    async def login(self) -> Login:
        """Return the login to use now."""
        return self._login

    async def renew(self) -> bool:
        """Read everything again after a 401; return False if nothing has changed."""
        return False


class FileToken(Credentials):
    """A login whose token is in a file that is rotated."""

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
            return False  # in the middle of a rotation; the old token may still be valid
        await faults.reach(FaultPoint.AFTER_TOKEN_READ)
        changed = token != self._login.token
        self._login = replace(self._login, token=token)
        return changed


class LoadedCredentials(Credentials):
    """A login that must be loaded first, for example by an exec plugin."""

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
    """Return the credentials of our own Pod; None = we do not run in one."""
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
    """Return the login with its TLS context; raises InvalidSetting if a certificate is invalid."""
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
    """Read a small file, without surrounding blanks; raises InvalidSetting."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidSetting("KUBECONFIG", f"cannot read {path}: {error}") from error


# -- kubeconfig ----------------------------------------------------------------------------------

#: Keys of a user entry that only the official package supports.
_SPECIAL = ("exec", "auth-provider")
#: Keys that we must not ignore: without them we would have another identity.
_UNSUPPORTED = ("username", "password", "as", "as-uid", "as-groups", "as-user-extra")


class _Broken(Exception):
    """The content of the file is invalid."""


def found(
    path: Path | None, context: str | None, environment: Mapping[str, str] = os.environ
) -> Credentials:
    """Return the credentials: of a given file, $KUBECONFIG, ~/.kube/config or the Pod's account.

    Raises:
        errors.InvalidSetting: there are none.
    """
    if path is not None:
        if not path.exists():
            raise errors.InvalidSetting("--kubeconfig", f"there is no file {path}")
        return of_kubeconfig(path, context)
    listed = environment.get("KUBECONFIG", "").split(os.pathsep)
    paths = [Path(part) for part in listed if part] or [_home() / ".kube" / "config"]
    # Not Path.exists, which raises for the home of another user.
    if existing := [each for each in paths if os.path.exists(each)]:  # noqa: PTH110
        return _of_files(existing, context)
    if (own := in_cluster(environment)) is not None:
        return own
    message = (
        f"no API server: not in a Pod, and there is no file {os.pathsep.join(map(str, paths))};"
        " write --kubeconfig FILE, or set KUBECONFIG"
    )
    raise errors.InvalidSetting("KUBECONFIG", message)


def _home() -> Path:
    """Return the home of this user; in a container there may be none."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("~")


def of_kubeconfig(path: Path, context: str | None = None) -> Credentials:
    """Return the credentials of a context, by default the current one; raises InvalidSetting."""
    return _of_files([path], context)


def _of_files(paths: Sequence[Path], context: str | None) -> Credentials:
    read = _Kubeconfig(paths)
    try:
        return _of_context(read, context)
    except _Broken as error:
        raise errors.InvalidSetting("KUBECONFIG", f"{read.files}: {error}") from error


class _Kubeconfig:
    """One or several files that count as one."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.files = os.pathsep.join(map(str, paths))
        self._documents = [(path.parent, _parsed(path)) for path in paths]

    @property
    def current_context(self) -> str:
        """The current context of the first file that names one; empty = none does."""
        named = (document.get("current-context") for _, document in self._documents)
        return str(next(filter(None, named), ""))

    def entry(self, kind: str, name: object, part: str) -> tuple[Path, Mapping[str, Any]]:
        """Return the first entry of this name, and the folder of its file; raises _Broken."""
        for folder, entry in self._entries(kind):
            if entry.get("name") == name:
                found = entry.get(part)
                return folder, found if isinstance(found, Mapping) else {}
        raise _Broken(f"has no {part} named {errors.quoted(name)}")

    def names(self, kind: str) -> list[str]:
        return [str(entry.get("name")) for _, entry in self._entries(kind)]

    def _entries(self, kind: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        for folder, document in self._documents:
            entries = document.get(kind)
            for entry in entries if isinstance(entries, Sequence) else ():
                if isinstance(entry, Mapping):
                    yield folder, entry


def _of_context(read: _Kubeconfig, context: str | None) -> Credentials:
    if context is not None and context not in (names := read.names("contexts")):
        near = difflib.get_close_matches(context, names, n=1)
        hint = f'did you mean "{near[0]}"?' if near else _choice(names)
        message = f"{read.files} has no context named {errors.quoted(context)}; {hint}"
        raise errors.InvalidSetting("--context", message)
    name = context or read.current_context
    if not name:
        names = read.names("contexts")
        raise _Broken(f"has no current-context; {_choice(names, '--context')}")
    _, chosen = read.entry("contexts", name, "context")
    cluster_folder, cluster = read.entry("clusters", chosen.get("cluster"), "cluster")
    user_folder, user = cluster_folder, _NOBODY
    if chosen.get("user"):
        user_folder, user = read.entry("users", chosen.get("user"), "user")
    for key in _UNSUPPORTED:
        if user.get(key):
            raise _Broken(f"uses {key!r}, which is not supported; use a token or a certificate")
    if any(user.get(key) for key in _SPECIAL):
        return LoadedCredentials(lambda: _official(read.files, name, chosen))
    place = _Entry(cluster_folder, cluster)
    return _plain(place, _Entry(user_folder, user), str(chosen.get("namespace") or "default"))


def _choice(names: Sequence[str], option: str = "") -> str:
    """Return advice if no context was chosen, or one that does not exist."""
    if not names:
        return "write another file: this one has no context"
    more = ", ..." if len(names) > _SHOWN else ""
    shown = f"{', '.join(names[:_SHOWN])}{more}"
    if names[1:]:
        shown = f"with one of {shown}" if option else f"one of {shown}"
    return " ".join(filter(None, ("write", option, shown)))


#: The most contexts to name in a message.
_SHOWN = 10

#: A context without a user sends requests without credentials.
_NOBODY: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a file about a cluster or a user.

    Attributes:
        folder: the folder for relative paths.
    """

    folder: Path
    values: Mapping[str, Any]

    def file(self, key: str) -> str | None:
        name = self.values.get(key)
        return str(self.folder / str(name)) if name else None


def _plain(at: _Entry, who: _Entry, namespace: str) -> Credentials:
    cluster, user = at.values, who.values
    login = Login(
        server=str(cluster.get("server") or "").rstrip("/"),
        namespace=namespace,
        ca_file=at.file("certificate-authority"),
        ca_data=_data(cluster.get("certificate-authority-data")),
        server_name=cluster.get("tls-server-name") or None,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        proxy=cluster.get("proxy-url") or None,
        token=user.get("token") or None,
        certificate_file=who.file("client-certificate"),
        key_file=who.file("client-key"),
    )
    if not login.server.startswith(("https://", "http://")):
        raise _Broken("names no server of its cluster")
    if user.get("client-certificate-data"):
        # TLS contexts load a pair from files only, so the files exist just for that long.
        with tempfile.TemporaryDirectory() as inline:  # mode 0700
            files = [Path(inline, name) for name in ("certificate", "key")]
            for file, name in zip(
                files, ("client-certificate-data", "client-key-data"), strict=True
            ):
                file.write_text(_data(user.get(name)) or "")
            certificate, key = map(str, files)
            return Credentials(replace(login, certificate_file=certificate, key_file=key))
    token_file = who.file("tokenFile")
    if token_file and not login.token:
        return FileToken(login, Path(token_file))
    return Credentials(login)


def _official(files: str, context: str, chosen: Mapping[str, Any]) -> Login:
    """Load the login of a context with the official package; blocks, may start a program."""
    try:
        from kubernetes import client, config  # noqa: PLC0415 - costs 35 MB, hardly ever needed
    except ModuleNotFoundError as missing:
        raise errors.InvalidSetting(
            "KUBECONFIG",
            f"{files}: context {context} logs in by a program or a provider, for which the package"
            " kubernetes is needed: pip install 'duepoint[login]'",
        ) from missing

    loaded = client.Configuration()
    try:
        load = config.load_kube_config
        load(files, context, client_configuration=loaded)  # type: ignore[no-untyped-call]
    except Exception as error:  # a user's plugin may raise anything
        raise errors.InvalidSetting(
            "KUBECONFIG", f"{files}: context {context} cannot log in: {error}"
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
    """Parse a file; raises errors.InvalidSetting."""
    text = read_text(path)
    try:
        document: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        import yaml  # noqa: PLC0415 - comes with the official package; not needed for JSON

        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f" (line {mark.line + 1}: {getattr(error, 'problem', '')})" if mark else ""
            message = f"{path} is neither JSON nor YAML{where}"
            raise errors.InvalidSetting("KUBECONFIG", message) from error
    if document is None:
        return {}  # an empty file, as kubectl takes it
    if not isinstance(document, Mapping):
        raise errors.InvalidSetting("KUBECONFIG", f"{path} is no kubeconfig")
    return document


def _data(encoded: object) -> str | None:
    if not encoded:
        return None
    try:
        return base64.b64decode("".join(str(encoded).split()), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise _Broken("holds certificate data that are no base64 text") from error
