"""What of a webhook does not stand in its spec: secrets, tokens and certificates, when it is sent.

``Vault.of`` turns the references of a webhook into ``WebhookCredentials``: headers, signers,
a TLS context, and the texts that no message may repeat. Or into a ``Trouble``: what is missing,
forbidden or unusable may be corrected at any time, so it is tried again. Two things are not,
because only an edit or the operator's settings correct them: TLS without verification, and a token
that would open the API server itself.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import urllib.parse
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from duepoint import clock as clocks
from duepoint import errors as base
from duepoint import settings
from duepoint.kube import errors
from duepoint.schedules import actions, targetspec, webhooksecrets
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from duepoint.targets.secretaccess import references, secretcache, tlscontexts
from duepoint.targets.webhook import signing

_URL_FROM = "spec.webhook.urlFrom.secretKeyRef"

#: Names by which an API server knows itself, besides the issuer of its tokens.
API_AUDIENCES = tuple(
    f"{scheme}kubernetes{domain}"
    for scheme in ("", "https://")
    for domain in ("", ".default", ".default.svc", ".default.svc.cluster.local")
)


#: A burst of deliveries shares what was gathered for the first of them.
_TOGETHER_SECONDS = 2.0
_MOST_GATHERED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialRules:
    """What the operator of the installation decided.

    Attributes:
        insecure_tls: whether a webhook may leave certificates unverified.
        api_audiences: audiences that no token is asked for, besides ``API_AUDIENCES``.
        reader_role: the ClusterRole that an admin binds to let the worker read Secrets.
    """

    insecure_tls: bool = False
    api_audiences: tuple[str, ...] = ()
    reader_role: str = "duepoint-secret-reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookCredentials:
    """What one delivery needs; it lives as long as the delivery.

    Attributes:
        headers: the user's, each with its value, and that of ``auth``.
        signers: of the signature; empty = unsigned.
        tls: None = the default context.
        url: the receiver's, where it stands in a Secret.
        unspeakable: what must not be repeated in any message.
    """

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    signers: tuple[signing.Signer, ...] = ()
    tls: ssl.SSLContext | None = None
    url: str | None = field(default=None, repr=False)
    unspeakable: tuple[str, ...] = field(default=(), repr=False)


class CredentialSource(Protocol):
    """Where materials come from; ``Vault``."""

    async def of(
        self, namespace: str, webhook: actions.WebhookAction
    ) -> WebhookCredentials | target.Trouble:
        """The materials of a webhook that is not plain."""
        ...

    def at_hand(self, namespace: str, webhook: actions.WebhookAction) -> WebhookCredentials | None:
        """The credentials, where they are known already."""
        ...

    def forget(self, namespace: str) -> None:
        """What was read of this namespace did not work: read it again next time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gathered:
    """What serves a few seconds; the webhook is held so that its id stays its own."""

    webhook: actions.WebhookAction
    materials: WebhookCredentials
    until: float


class Vault:
    """Reads through caches; one for a worker.

    Args:
        own_audiences: audiences of our own token of today, which are the API server's.
    """

    def __init__(
        self,
        objects: secretcache.Objects,
        tokens: secretcache.Tokens,
        clock: clocks.Clock,
        rules: CredentialRules = CredentialRules(),
        own_audiences: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._clock = clock
        self._gathered: OrderedDict[tuple[str, int], _Gathered] = OrderedDict()
        self._objects = objects
        self._keys = references.KeyReader(objects)
        self._tokens = tokens
        self._rules = rules
        self._own_audiences = own_audiences
        self._contexts = tlscontexts.TlsContexts()

    async def of(
        self, namespace: str, webhook: actions.WebhookAction
    ) -> WebhookCredentials | target.Trouble:
        """See ``CredentialSource.of``."""
        if (at_hand := self.at_hand(namespace, webhook)) is not None:
            return at_hand
        key = (namespace, id(webhook))
        found = await self._looked_for(namespace, webhook)
        if isinstance(found, WebhookCredentials):
            until = self._clock.monotonic() + _TOGETHER_SECONDS
            self._gathered[key] = _Gathered(webhook=webhook, materials=found, until=until)
            self._gathered.move_to_end(key)
            if len(self._gathered) > _MOST_GATHERED:
                self._gathered.popitem(last=False)
        return found

    def at_hand(self, namespace: str, webhook: actions.WebhookAction) -> WebhookCredentials | None:
        """See ``CredentialSource.at_hand``."""
        known = self._gathered.get((namespace, id(webhook)))
        if known is not None and self._clock.monotonic() < known.until:
            return known.materials
        return None

    async def _looked_for(
        self, namespace: str, webhook: actions.WebhookAction
    ) -> WebhookCredentials | target.Trouble:
        try:
            self._check(webhook)
            return await self._gather(namespace, webhook)
        except _Refused as refused:
            return _refusal(str(refused))
        except references.Missing as missing:
            return _trouble(Reason.MISSING_SECRET, str(missing))
        except references.Withheld as withheld:
            return _trouble(Reason.SECRET_FORBIDDEN, str(withheld))
        except references.ReadDenied as denied:
            line = references.permission(denied, self._rules.reader_role)
            return _trouble(Reason.SECRET_FORBIDDEN, line)
        except errors.Unavailable as away:
            message = f"Secrets of {namespace} cannot be read: {away}"
            return _trouble(Reason.API_UNAVAILABLE, message)

    def forget(self, namespace: str) -> None:
        """See ``CredentialSource.forget``."""
        for key in [key for key in self._gathered if key[0] == namespace]:
            del self._gathered[key]
        self._objects.forget(namespace)
        self._tokens.forget(namespace)

    def _check(self, webhook: actions.WebhookAction) -> None:
        """Raise _Refused for what no Secret can mend."""
        if webhook.tls and webhook.tls.insecure_skip_verify and not self._rules.insecure_tls:
            raise _Refused(
                "spec.webhook.tls.insecureSkipVerify: is not allowed here; name the receiver's CA "
                f"in caRef, or have the operator set {settings.variable('webhook_insecure_tls')}"
            )
        auth = webhook.auth
        if isinstance(auth, actions.AccountToken) and self._is_api_audience(auth.audience):
            raise _Refused(_opens_the_api(auth.audience))

    def _is_api_audience(self, audience: str) -> bool:
        refused = (*API_AUDIENCES, *self._rules.api_audiences, *self._own_audiences())
        return audience.strip().rstrip("/") in {one.rstrip("/") for one in refused}

    # -- gathering ---------------------------------------------------------------------------------

    async def _gather(self, namespace: str, webhook: actions.WebhookAction) -> WebhookCredentials:
        unspeakable: list[str] = []
        url = await self._url(namespace, webhook, unspeakable)
        at = _Receiving(namespace, _receiver(namespace, webhook, url), unspeakable)
        headers = await self._headers(at, webhook.headers)
        authorization = await self._authorization(at, webhook.auth)
        if authorization is not None:
            headers += (("authorization", authorization),)
        return WebhookCredentials(
            headers=headers,
            signers=await self._signers(at, webhook.signing),
            tls=await self._tls(at, webhook),
            url=url,
            unspeakable=tuple(unspeakable),
        )

    async def _url(
        self, namespace: str, webhook: actions.WebhookAction, unspeakable: list[str]
    ) -> str | None:
        """The URL that a Secret holds; that Secret has to name the URL's own host."""
        if webhook.url_secret is None:
            return None
        to = references.secret(_URL_FROM, namespace, webhook.url_secret.name)
        data = await self._keys.whole(to)
        references.require_any_consent(to, data)
        text = await self._keys.line(to, webhook.url_secret.key)
        if trouble := targetspec.url_trouble(text) or _tls_trouble(text, webhook):
            raise references.Missing(to, f"key {webhook.url_secret.key} of {to.object} {trouble}")
        unspeakable += _spellings(text)
        references.require_consent(to, data, _receiver(namespace, webhook, text))
        return text

    async def _headers(
        self, at: _Receiving, wanted: tuple[actions.Header, ...]
    ) -> tuple[tuple[str, str], ...]:
        made = []
        for index, header in enumerate(wanted):
            value = header.value
            if header.secret is not None:
                path = f"spec.webhook.headers[{index}].valueFrom.secretKeyRef"
                to = at.secret(path, header.secret.name)
                value = await self._keys.line(to, header.secret.key)
                at.unspeakable.extend(_spellings(value))
            made.append((header.name, value))
        return tuple(made)

    async def _signers(
        self, at: _Receiving, wanted: tuple[actions.SecretKey, ...]
    ) -> tuple[signing.Signer, ...]:
        made = []
        for index, secret in enumerate(wanted):
            path = f"spec.webhook.signing.secretKeyRefs[{index}]"
            to = at.secret(path, secret.name)
            text = (await self._keys.text(to, secret.key)).strip()
            try:
                made.append(signing.signer(text))
            except ValueError as error:
                message = f"key {secret.key} of {to.object} {error}"
                raise references.Missing(to, message) from None
            at.unspeakable.extend((text, text.partition("_")[2]))
        return tuple(made)

    async def _authorization(
        self, at: _Receiving, auth: actions.Bearer | actions.Basic | actions.AccountToken | None
    ) -> str | None:
        match auth:
            case actions.Bearer(secret=secret):
                path = "spec.webhook.auth.bearer.secretKeyRef"
                token = await self._keys.line(at.secret(path, secret.name), secret.key)
                at.unspeakable.extend(_spellings(token))
                return f"Bearer {token}"
            case actions.Basic(secret_name=name):
                return await self._basic(at, name)
            case actions.AccountToken():
                token = await self._token(at.namespace, auth)
                at.unspeakable.append(token)
                return f"Bearer {token}"
            case None:
                return None

    async def _basic(self, at: _Receiving, name: str) -> str:
        """RFC 7617, in UTF-8; the user's name ends at the first colon."""
        to = at.secret("spec.webhook.auth.basic.secretRef", name)
        user = (await self._keys.text(to, "username")).rstrip("\r\n")
        password = (await self._keys.text(to, "password")).rstrip("\r\n")
        for key, text in (("username", user), ("password", password)):
            if webhooksecrets.is_unsendable(text) or (key == "username" and ":" in text):
                message = f"key {key} of {to.object} has characters that Basic cannot carry"
                raise references.Missing(to, message)
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        at.unspeakable.extend((*_spellings(password), encoded))
        return f"Basic {encoded}"

    async def _token(self, namespace: str, auth: actions.AccountToken) -> str:
        to = references.Reference(
            path="spec.webhook.auth.serviceAccountToken",
            kind=references.ACCOUNT,
            namespace=namespace,
            name=auth.account,
        )
        await self._require_audience(to, auth.audience)
        try:
            token = await self._tokens.get(namespace, (auth.account, auth.audience))
        except errors.NotFound:
            raise references.Missing(to, f"{to.object} does not exist; create it") from None
        except errors.Forbidden as error:
            raise references.ReadDenied(to, error) from None
        except errors.Invalid as error:
            raise references.Missing(to, f"there is no token of {to.object}: {error}") from None
        if auth.audience == _issuer(token.text):
            raise _Refused(_opens_the_api(auth.audience))
        return token.text

    async def _require_audience(self, to: references.Reference, audience: str) -> None:
        account = await self._keys.whole(to)
        if not references.may_have_token(account.annotations, audience):
            raise references.Withheld(
                to,
                f"no token of {to.object} may be made for the audience {base.quoted(audience)}, "
                f"because its annotation {references.TOKEN_AUDIENCES} does not list it; who owns "
                f"the account allows it with: kubectl annotate --overwrite serviceaccount "
                f"{to.name} -n {to.namespace} {references.TOKEN_AUDIENCES}={audience}",
            )

    async def _tls(self, at: _Receiving, webhook: actions.WebhookAction) -> ssl.SSLContext | None:
        tls, namespace = webhook.tls, at.namespace
        if tls is None:
            return None
        ca = certificate = key = None
        if tls.ca is not None:
            ca = await self._keys.content(references.authorities(namespace, tls.ca), tls.ca.key)
        path = "spec.webhook.tls.clientCertificateSecretRef"
        ours = at.secret(path, tls.client_certificate or "")
        if tls.client_certificate is not None:
            certificate = await self._keys.content(ours, "tls.crt")
            key = await self._keys.content(ours, "tls.key")
        wanted = tlscontexts.TlsMaterial(
            owner=(namespace, webhook.service is not None),
            ca=ca,
            certificate=certificate,
            key=key,
            unverified=tls.insecure_skip_verify,
        )
        try:
            return await self._contexts.get(wanted)
        except tlscontexts.Unusable as error:
            is_ca = error.part == "ca" and tls.ca is not None
            to = references.authorities(namespace, tls.ca) if is_ca and tls.ca else ours
            raise references.Missing(to, f"{to.object}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Receiving:
    """Who is to get what is gathered, and what must not be repeated of it."""

    namespace: str
    receiver: references.Receiver
    unspeakable: list[str] = field(repr=False)

    def secret(self, path: str, name: str) -> references.Reference:
        return references.secret(path, self.namespace, name, self.receiver)


def _receiver(
    namespace: str, webhook: actions.WebhookAction, url: str | None
) -> references.Receiver:
    """Where the webhook goes, as it is named in the spec; a Service by its name in the cluster."""
    service = webhook.service
    if service is not None:
        # The author of the Service decides what number a name stands for.
        port = service.port if isinstance(service.port, int) else None
        return references.Receiver(f"{service.name}.{namespace}.svc", port)
    try:
        parts = urllib.parse.urlsplit(url or webhook.url or "")
    except ValueError:  # brackets around what is no address; nothing can be called there
        return references.Receiver("", None)
    usual = 443 if parts.scheme == "https" else 80
    return references.Receiver(parts.hostname or "", parts.port or usual)


def _tls_trouble(url: str, webhook: actions.WebhookAction) -> str:
    if webhook.tls is not None and url.startswith("http:"):
        return "is plain http beside spec.webhook.tls; write https://, or remove tls"
    return ""


class _Refused(Exception):
    """Only an edit, or the operator's settings, can mend it."""


def _spellings(secret: str) -> Iterable[str]:
    """A receiver may echo a header as it came, or in one of the usual wrappings."""
    return (
        secret,
        base64.b64encode(secret.encode()).decode(),
        urllib.parse.quote(secret, safe=""),
        json.dumps(secret)[1:-1],
    )


def audiences_of(token: str | None) -> tuple[str, ...]:
    """The audiences of a token; one that a Pod was given names all of its API server's."""
    named = _claims(token or "").get("aud")
    listed = named if isinstance(named, list) else [named]
    return tuple(one for one in listed if isinstance(one, str))


def _issuer(token: str) -> str | None:
    """Who made the token: its API server, whose own audience is that name unless set otherwise."""
    issuer = _claims(token).get("iss")
    return issuer if isinstance(issuer, str) else None


def _claims(token: str) -> Mapping[str, Any]:
    """What a JSON Web Token says, unverified; empty for any other text."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}


def _opens_the_api(audience: str) -> str:
    return (
        f"spec.webhook.auth.serviceAccountToken.audience: {base.quoted(audience)} is the API "
        "server's own, and such a token would open it to the receiver; write the receiver's name"
    )


def _refusal(message: str) -> target.Trouble:
    return target.Trouble(
        reason=Reason.INVALID_WEBHOOK, message=message, code_class="refused", final=True
    )


def _trouble(reason: Reason, message: str) -> target.Trouble:
    return target.Trouble(reason=reason, message=message, code_class="secret", unsent=True)
