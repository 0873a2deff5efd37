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
import math
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
    """A source of logins: one login, or the newest of those that ``load`` makes.

    Args:
        login: the first login; None = load it when it is needed.
        load: makes a login and may block, for example in an exec plugin; raises InvalidSetting.
        fresh_seconds: how long a login is used before it is loaded again.
    """

    def __init__(
        self,
        login: Login | None,
        load: Callable[[], Login] | None = None,
        *,
        fresh_seconds: float = math.inf,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._login = login if login is None or login.ssl else with_context(login)
        self._load = load
        self._fresh_seconds = fresh_seconds
        self._monotonic = monotonic
        self._read_at = monotonic()
        self._lock = asyncio.Lock()

    def known(self) -> Login | None:
        """Return the login to use now, if it is already known."""
        return self._login if self._monotonic() - self._read_at < self._fresh_seconds else None

    async def login(self) -> Login:
        """Return the login to use now; raises InvalidSetting if there never was one."""
        async with self._lock:
            if self.known() is None:
                await self._renew()
            assert self._login is not None  # noqa: S101 - it was loaded
            return self._login

    async def renew(self) -> bool:
        """Load the login again after a 401; return False if nothing has changed."""
        async with self._lock:
            return await self._renew()

    async def _renew(self) -> bool:
        if self._load is None:
            return False
        self._read_at, old = self._monotonic(), self._login
        try:
            new = await asyncio.to_thread(self._load)
        except errors.InvalidSetting:
            if old is None:
                raise
            return False  # in the middle of a rotation; the old login may still be valid
        await faults.reach(FaultPoint.AFTER_TOKEN_READ)
        if old is not None and replace(old, token=new.token) == new:
            self._login = replace(old, token=new.token)  # connections outlast a rotated token
        else:
            self._login = with_context(new)
        return self._login != old


def of_token_file(
    login: Login, token_file: Path, *, monotonic: Callable[[], float] = time.monotonic
) -> Credentials:
    """Return the credentials of a login whose token is in a file that is rotated."""

    def load() -> Login:
        return replace(login, token=read_text(token_file))

    return Credentials(load(), load, fresh_seconds=TOKEN_AGE_SECONDS, monotonic=monotonic)


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
    return of_token_file(login, folder / "token")


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
    read = _read(paths)
    try:
        return _of_context(read, context)
    except _Broken as error:
        raise errors.InvalidSetting("KUBECONFIG", f"{read.files}: {error}") from error


#: The lists of a kubeconfig, with the field that has the content of an entry.
_PARTS = {"contexts": "context", "clusters": "cluster", "users": "user"}
#: Fields with a path, which is relative to the folder of its file.
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kubeconfig:
    """One or several files that count as one; entries by list and name, all paths absolute."""

    files: str
    current_context: str
    entries: Mapping[str, Mapping[object, Mapping[str, Any]]]

    def entry(self, kind: str, name: object) -> Mapping[str, Any]:
        """Return the entry of this name; raises _Broken."""
        if name not in self.entries[kind]:
            raise _Broken(f"has no {_PARTS[kind]} named {errors.quoted(name)}")
        return self.entries[kind][name]


def _read(paths: Sequence[Path]) -> _Kubeconfig:
    """Read the files; of two entries with one name the first counts, and so of two contexts."""
    current = ""
    entries: dict[str, dict[object, dict[str, Any]]] = {kind: {} for kind in _PARTS}
    for path in paths:
        document = _parsed(path)
        current = current or str(document.get("current-context") or "")
        for kind, part in _PARTS.items():
            listed = document.get(kind)
            for entry in listed if isinstance(listed, Sequence) else ():
                if not isinstance(entry, Mapping):
                    continue
                content = entry.get(part)
                values = dict(content) if isinstance(content, Mapping) else {}
                for key in _PATHS:
                    if values.get(key):
                        values[key] = str(path.parent / str(values[key]))
                entries[kind].setdefault(str(entry.get("name")), values)
    files = os.pathsep.join(map(str, paths))
    return _Kubeconfig(files=files, current_context=current, entries=entries)


def _of_context(read: _Kubeconfig, context: str | None) -> Credentials:
    names = [str(name) for name in read.entries["contexts"]]
    if context is not None and context not in names:
        near = difflib.get_close_matches(context, names, n=1)
        hint = f'did you mean "{near[0]}"?' if near else _choice(names)
        message = f"{read.files} has no context named {errors.quoted(context)}; {hint}"
        raise errors.InvalidSetting("--context", message)
    name = context or read.current_context
    if not name:
        raise _Broken(f"has no current-context; {_choice(names, '--context')}")
    chosen = read.entry("contexts", name)
    cluster = read.entry("clusters", chosen.get("cluster"))
    # A context without a user sends requests without credentials.
    user = read.entry("users", chosen["user"]) if chosen.get("user") else {}
    for key in _UNSUPPORTED:
        if user.get(key):
            raise _Broken(f"uses {key!r}, which is not supported; use a token or a certificate")
    if any(user.get(key) for key in _SPECIAL):
        return Credentials(None, lambda: _official(read.files, name, chosen))
    return _plain(cluster, user, str(chosen.get("namespace") or "default"))


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


def _plain(cluster: Mapping[str, Any], user: Mapping[str, Any], namespace: str) -> Credentials:
    login = Login(
        server=str(cluster.get("server") or "").rstrip("/"),
        namespace=namespace,
        ca_file=cluster.get("certificate-authority") or None,
        ca_data=_data(cluster.get("certificate-authority-data")),
        server_name=cluster.get("tls-server-name") or None,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        proxy=cluster.get("proxy-url") or None,
        token=user.get("token") or None,
        certificate_file=user.get("client-certificate") or None,
        key_file=user.get("client-key") or None,
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
    if user.get("tokenFile") and not login.token:
        return of_token_file(login, Path(user["tokenFile"]))
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
        raise errors.InvalidSetting("KUBECONFIG", f"{path} is not a kubeconfig")
    return document


def _data(encoded: object) -> str | None:
    if not encoded:
        return None
    try:
        return base64.b64decode("".join(str(encoded).split()), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise _Broken("has certificate data that is not valid base64") from error
