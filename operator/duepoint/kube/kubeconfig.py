"""A kubeconfig file and a context -> credentials.

What a file says plainly (token, token file, certificates, proxy) is read here. JSON, which is
YAML too and which the development cluster writes, needs no parser beyond ours; for other YAML
PyYAML is imported, and for exec plugins and identity providers the official
``kubernetes`` package, each only when it is needed. Paths inside a file are relative to it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from duepoint import errors
from duepoint.kube import credentials

#: Keys of a user entry that only the official package understands.
_SPECIAL = ("exec", "auth-provider")
#: Keys whose silent loss would give us another identity.
_UNSUPPORTED = ("username", "password", "as", "as-uid", "as-groups", "as-user-extra")


class _Broken(Exception):
    """The file does not say what it should."""


def credentials_for(path: Path, context: str | None = None) -> credentials.Credentials:
    """Credentials of a context, the current one by default; raises InvalidSetting."""
    try:
        return _credentials(path, context)
    except _Broken as error:
        raise errors.InvalidSetting("KUBECONFIG", f"{path}: {error}") from error


def found(
    path: Path | None, context: str | None, environment: Mapping[str, str] = os.environ
) -> credentials.Credentials:
    """The credentials to use: a given file, the Pod's own account, $KUBECONFIG, ~/.kube/config.

    Raises:
        errors.InvalidSetting: there are none.
    """
    if path is None and (own := credentials.in_cluster(environment)) is not None:
        return own
    chosen = path or _default_path(environment)
    if not chosen.exists():
        raise errors.InvalidSetting(
            "KUBECONFIG", f"no API server: not in a Pod, and there is no file {chosen}"
        )
    return credentials_for(chosen, context)


def _default_path(environment: Mapping[str, str]) -> Path:
    listed = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    existing = [Path(part) for part in listed if Path(part).exists()]
    if existing or listed:
        return (existing or [Path(listed[0])])[0]
    return Path.home() / ".kube" / "config"


def _credentials(path: Path, context: str | None) -> credentials.Credentials:
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
        return credentials.LoadedCredentials(lambda: _official(path, name, chosen))
    return _plain(path.parent, cluster, user, str(chosen.get("namespace") or "default"))


def _plain(
    folder: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], namespace: str
) -> credentials.Credentials:
    login = credentials.Login(
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
        return _with_inline_pair(login, user)
    token_file = _file(folder, user.get("tokenFile"))
    if token_file and not login.token:
        return credentials.FileToken(login, Path(token_file))
    return credentials.FixedCredentials(login)


def _with_inline_pair(
    login: credentials.Login, user: Mapping[str, Any]
) -> credentials.FixedCredentials:
    """TLS contexts load a pair from files only: they exist for as long as that takes."""
    pair = (_data(user.get("client-certificate-data")), _data(user.get("client-key-data")))
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(_private_file(text or "")) for text in pair]
        loaded = replace(login, certificate_file=files[0], key_file=files[1])
        return credentials.FixedCredentials(loaded)


@contextlib.contextmanager
def _private_file(text: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # mode 0600
        file.write(text)
        file.flush()
        yield file.name


def _official(path: Path, context: str, chosen: Mapping[str, Any]) -> credentials.Login:
    """The login that the official package makes of the context; blocks, may start a program."""
    from kubernetes import client, config  # noqa: PLC0415 - costs 35 MB, hardly ever needed

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
    return credentials.Login(
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
    text = credentials.read_text(path)
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError:
        document = _parsed_yaml(text)
    if not isinstance(document, Mapping):
        raise _Broken("is no kubeconfig")
    return document


def _parsed_yaml(text: str) -> object:
    import yaml  # noqa: PLC0415 - comes with the official package; JSON does without

    try:
        document: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _Broken(f"is neither JSON nor YAML: {error}") from error
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
