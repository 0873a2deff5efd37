"""Resolves the secrets, tokens and certificates of a webhook at delivery time.

``Vault.of`` turns the references of a webhook into ``WebhookCredentials``: headers, signers, a TLS
context, and the texts that no message may repeat. Or it returns a ``Trouble``. Anything missing,
forbidden or unusable may be corrected at any time, so the worker retries. Two troubles are final,
because only an edit or the operator's settings correct them: TLS without verification, and a token
that the API server itself would accept.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from duepoint import errors as base
from duepoint import settings
from duepoint.kube import errors
from duepoint.model import webhook as model
from duepoint.schedules import actions, specfields
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from duepoint.targets.secretaccess import references, tlscontexts
from duepoint.targets.webhook import signing

_URL_FROM = "spec.webhook.urlFrom.secretKeyRef"
_HEADER = "spec.webhook.headers[{}].valueFrom.secretKeyRef"

#: Audiences that an API server usually accepts, besides the issuer of its tokens.
API_AUDIENCES = tuple(
    f"{scheme}kubernetes{domain}"
    for scheme in ("", "https://")
    for domain in ("", ".default", ".default.svc", ".default.svc.cluster.local")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookCredentials:
    """The resolved credentials of a webhook.

    Attributes:
        headers: the user's headers with their values, and the header of ``auth``.
        signers: those that sign the request; empty = unsigned.
        tls: None = the default context.
        url: the receiver's URL, if it comes from a Secret.
        unspeakable: texts that no message may repeat.
    """

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    signers: tuple[signing.Signer, ...] = ()
    tls: ssl.SSLContext | None = None
    url: str | None = field(default=None, repr=False)
    unspeakable: tuple[str, ...] = field(default=(), repr=False)


class Vault:
    """Resolves credentials through caches; each worker has one.

    Args:
        reader_role: the ClusterRole that an admin binds to let the worker read Secrets.
        is_insecure_allowed: whether a webhook may leave certificates unverified.
        own_audiences: returns the audiences of our current token, which the API server accepts.
    """

    def __init__(
        self,
        objects: references.Objects,
        tokens: references.Tokens,
        *,
        reader_role: str = "duepoint-secret-reader",
        is_insecure_allowed: bool = False,
        own_audiences: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._objects = objects
        self._keys = references.KeyReader(objects, reader_role)
        self._tokens = tokens
        self._is_insecure_allowed = is_insecure_allowed
        self._own_audiences = own_audiences
        self._contexts = tlscontexts.TlsContexts()

    async def of(
        self, namespace: str, webhook: actions.WebhookAction
    ) -> WebhookCredentials | target.Trouble:
        """Return the credentials of a webhook that needs some, or the trouble with them."""
        try:
            self._check(webhook)
            return await self._gather(namespace, webhook)
        except references.Unread as unread:
            return unread.trouble

    def forget(self, namespace: str) -> None:
        """Read this namespace's objects and tokens again next time, because they did not work."""
        self._objects.forget(namespace)
        self._tokens.forget(namespace)

    def _check(self, webhook: actions.WebhookAction) -> None:
        """Raise Unread for a webhook that no Secret could make valid."""
        if webhook.tls and webhook.tls.insecure_skip_verify and not self._is_insecure_allowed:
            raise _refused(
                "spec.webhook.tls.insecureSkipVerify: is not allowed here; name the receiver's CA "
                f"in caRef, or have the operator set {settings.variable('webhook_insecure')}=tls"
            )
        if webhook.auth is not None and webhook.auth.service_account_token is not None:
            audience = webhook.auth.service_account_token.audience
            own = (*API_AUDIENCES, *self._own_audiences())
            if audience.strip().rstrip("/") in {one.rstrip("/") for one in own}:
                raise _opens_the_api(audience)

    # -- gathering ---------------------------------------------------------------------------------

    async def _gather(self, namespace: str, webhook: actions.WebhookAction) -> WebhookCredentials:
        at = _Receiving(self._keys, namespace, webhook)
        url = None
        if webhook.url_from is not None:
            url = await at.read_url(webhook.url_from.secret_key_ref)
        headers = [
            (header.name, header.value or "")
            if (source := header.value_from) is None
            else (header.name, await at.line(_HEADER.format(index), source.secret_key_ref))
            for index, header in enumerate(webhook.headers)
        ]
        match webhook.auth:
            case model.AuthFields(bearer=model.BearerFields(secret_key_ref=secret)):
                token = await at.line("spec.webhook.auth.bearer.secretKeyRef", secret)
                headers.append(("authorization", f"Bearer {token}"))
            case model.AuthFields(basic=model.BasicFields(secret_ref=secret)):
                headers.append(("authorization", f"Basic {await at.basic(secret.name)}"))
            case model.AuthFields(service_account_token=account) if account is not None:
                token = await self._token(namespace, account)
                at.unspeakable.append(token)
                headers.append(("authorization", f"Bearer {token}"))
        keys = () if webhook.signing is None else webhook.signing.secret_key_refs
        return WebhookCredentials(
            headers=tuple(headers),
            signers=tuple([await at.signer(index, key) for index, key in enumerate(keys)]),
            tls=None if webhook.tls is None else await self._tls(at, webhook.tls),
            url=url,
            unspeakable=tuple(at.unspeakable),
        )

    async def _token(self, namespace: str, auth: model.ServiceAccountTokenFields) -> str:
        to = references.Reference(
            path="spec.webhook.auth.serviceAccountToken",
            kind=references.ACCOUNT,
            namespace=namespace,
            name=auth.service_account_name,
        )
        account = await self._keys.whole(to)
        if not references.may_have_token(account.annotations, auth.audience):
            raise to.missing(
                f"no token of {to.object} may be made for the audience "
                f"{base.quoted(auth.audience)}, because its annotation "
                f"{references.TOKEN_AUDIENCES} does not list it; the account's owner allows it "
                f"with: kubectl annotate --overwrite serviceaccount {to.name} -n {to.namespace} "
                f"{references.TOKEN_AUDIENCES}={auth.audience}"
            )
        try:
            token = await self._tokens.get(namespace, (auth.service_account_name, auth.audience))
        except errors.Invalid as error:
            raise to.missing(f"there is no token of {to.object}: {error}") from None
        except errors.ApiError as error:
            raise self._keys.refused(to, error) from None
        # By default, an API server accepts tokens whose audience is its own issuer name.
        if auth.audience == _claims(token.text).get("iss"):
            raise _opens_the_api(auth.audience)
        return token.text

    async def _tls(self, at: _Receiving, tls: model.TlsFields) -> ssl.SSLContext:
        ca = certificate = key = None
        shown = tls.client_certificate_secret_ref
        theirs = ours = at.secret(
            "spec.webhook.tls.clientCertificateSecretRef", "" if shown is None else shown.name
        )
        if tls.ca_ref is not None:
            theirs = at.authorities(tls.ca_ref)
            ca = await self._keys.content(theirs, tls.ca_ref.key)
        if shown is not None:
            certificate = await self._keys.content(ours, "tls.crt")
            key = await self._keys.content(ours, "tls.key")
        wanted = tlscontexts.TlsMaterial(
            owner=(at.namespace, at.webhook.service is not None),
            ca=ca,
            certificate=certificate,
            key=key,
            unverified=bool(tls.insecure_skip_verify),
        )
        try:
            return await self._contexts.get(wanted)
        except tlscontexts.Unusable as error:
            to = theirs if error.part == "ca" else ours
            raise to.missing(f"{to.object}: {error}") from None


class _Receiving:
    """Reads the values that go to one receiver.

    Attributes:
        unspeakable: texts among them that no message may repeat.
    """

    def __init__(
        self, keys: references.KeyReader, namespace: str, webhook: actions.WebhookAction
    ) -> None:
        self._keys = keys
        self.namespace = namespace
        self.webhook = webhook
        self._receiver = _receiver(namespace, webhook, None)
        self.unspeakable: list[str] = []

    def secret(self, path: str, name: str) -> references.Reference:
        return references.secret(path, self.namespace, name, self._receiver)

    def authorities(self, ca: model.CaRefFields) -> references.Reference:
        """Return the reference to the object with the certificate authorities.

        Nothing in it is sent, but error messages reveal which keys it has. For a Secret that needs
        the owner's consent. A ConfigMap holds no secrets.
        """
        return references.Reference(
            path="spec.webhook.tls.caRef",
            kind="ConfigMap" if ca.secret is None else "Secret",
            namespace=self.namespace,
            name=ca.secret or ca.config_map or "",
            receiver=None if ca.secret is None else self._receiver,
        )

    async def read_url(self, secret: model.SecretKeyRefFields) -> str:
        """Return the URL from a Secret, whose annotation has to allow the URL's own host."""
        to = references.secret(_URL_FROM, self.namespace, secret.name)
        data = await self._keys.whole(to)
        references.require_any_consent(to, data)
        text = await self._keys.line(to, secret.key)
        trouble = specfields.url_trouble(text)
        if not trouble and self.webhook.tls is not None and text.startswith("http:"):
            trouble = "is plain http beside spec.webhook.tls; write https://, or remove tls"
        if trouble:
            raise to.unusable(secret.key, trouble)
        self.unspeakable += _spellings(text)
        self._receiver = _receiver(self.namespace, self.webhook, text)
        references.require_consent(to, data, self._receiver)
        return text

    async def line(self, path: str, secret: model.SecretKeyRefFields) -> str:
        text = await self._keys.line(self.secret(path, secret.name), secret.key)
        self.unspeakable += _spellings(text)
        return text

    async def signer(self, index: int, secret: model.SecretKeyRefFields) -> signing.Signer:
        to = self.secret(f"spec.webhook.signing.secretKeyRefs[{index}]", secret.name)
        text = (await self._keys.text(to, secret.key)).strip()
        self.unspeakable += (text, text.partition("_")[2])
        try:
            return signing.signer(text)
        except ValueError as error:
            raise to.unusable(secret.key, str(error)) from None

    async def basic(self, name: str) -> str:
        """Return encoded Basic credentials (RFC 7617, UTF-8); a user name may hold no colon."""
        to = self.secret("spec.webhook.auth.basic.secretRef", name)
        user = (await self._keys.text(to, "username")).rstrip("\r\n")
        password = (await self._keys.text(to, "password")).rstrip("\r\n")
        for key, text in (("username", user), ("password", password)):
            if specfields.is_unsendable(text) or (key == "username" and ":" in text):
                raise to.unusable(key, "has characters that Basic cannot carry")
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.unspeakable += (*_spellings(password), encoded)
        return encoded


def _receiver(
    namespace: str, webhook: actions.WebhookAction, url: str | None
) -> references.Receiver:
    """Return the webhook's receiver as the spec names it; a Service by its cluster name."""
    service = webhook.service
    if service is not None:
        # The author of the Service decides which number a port's name stands for.
        port = service.port if isinstance(service.port, int) else None
        return references.Receiver(f"{service.name}.{namespace}.svc", port)
    try:
        parts = urllib.parse.urlsplit(url or webhook.url or "")
    except ValueError:  # brackets around something that is not an address
        return references.Receiver("", None)
    usual = 443 if parts.scheme == "https" else 80
    return references.Receiver(parts.hostname or "", parts.port or usual)


def _spellings(secret: str) -> Iterable[str]:
    """Return a secret in the encodings that a receiver may echo it in."""
    return (
        secret,
        base64.b64encode(secret.encode()).decode(),
        urllib.parse.quote(secret, safe=""),
        json.dumps(secret)[1:-1],
    )


def audiences_of(token: str | None) -> tuple[str, ...]:
    """Return the audiences of a token; a Pod's own token names all that its API server accepts."""
    named = _claims(token or "").get("aud")
    listed = named if isinstance(named, list) else [named]
    return tuple(one for one in listed if isinstance(one, str))


def _claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a JSON Web Token, unverified; empty for any other text."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}


def _opens_the_api(audience: str) -> references.Unread:
    return _refused(
        f"spec.webhook.auth.serviceAccountToken.audience: {base.quoted(audience)} is the API "
        "server's own, and such a token would open it to the receiver; write the receiver's name"
    )


def _refused(message: str) -> references.Unread:
    """Return a final error, which only an edit or the operator's settings can correct."""
    return references.Unread(
        target.Trouble(
            reason=Reason.INVALID_SPEC, message=message, code_class="refused", final=True
        )
    )
