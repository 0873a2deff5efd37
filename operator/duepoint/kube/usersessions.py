"""Sessions that speak to the API server for a user: with the token that a request brought.

The API server judges each request of such a session by the rights of the token's owner, and its
audit log has their name. Nothing of ours goes along: neither our token nor our certificate, which
an API server would believe before any token. The sessions share their connections, since a token
is a header; each is thrown away with its request.
"""

from __future__ import annotations

from dataclasses import replace

from duepoint.kube import api, credentials, transport


class UserSessions:
    """Makes sessions of users; ``close`` ends the connections of all."""

    def __init__(
        self,
        access: credentials.Credentials,
        *,
        component: str,
        observe: api.Observer | None = None,
    ) -> None:
        """``access``: our own; it says where the API server is and how to know it."""
        self._access = access
        self._component = component
        self._observe = observe
        self._connections = transport.Transport(api.agent_of(component))
        self._own: credentials.Login | None = None
        self._anonymous: credentials.Login | None = None

    async def of(self, token: str) -> api.ApiSession:
        """A session of the owner of this token; raises errors.InvalidSetting."""
        login = replace(await self._nameless(), token=token)
        return api.ApiSession(
            _GivenLogin(login),
            component=self._component,
            observe=self._observe,
            connections=self._connections,
        )

    async def _nameless(self) -> credentials.Login:
        """Our login without what says who we are; its TLS context is made once."""
        own = await self._access.login()
        place = replace(own, token=None)
        if self._anonymous is None or self._own != place:
            self._own = place
            self._anonymous = credentials.with_context(
                replace(place, certificate_file=None, key_file=None, ssl=None)
            )
        return self._anonymous

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        await self._connections.close()


class _GivenLogin(credentials.Credentials):
    """A login whose TLS context is there already, and that nothing can renew."""

    def __init__(self, login: credentials.Login) -> None:
        self._login = login
