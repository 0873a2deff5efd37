"""A typed client of Duepoint's HTTP API; installed with ``pip install 'duepoint[client]'``.

    from duepoint.client import Client, MemberSpec

    with Client("https://duepoint-api.duepoint-system.svc:8443", token=token) as client:
        reminders = client.schedule_set("shop", "reminders")
        reminders.put("order-17", MemberSpec(delay="24h", payload={"order": 17}))

``AsyncClient`` is the same for asyncio. Arrows read downwards::

    clients       connections; one method for each request, with asyncio and without
    transport     which token to send, what a failure means, whether and when to retry
    rows          members as they are written, and in batches; the answers to rows
    problems      the exceptions

Only the command line uses this package; of the product it uses only the model, errors and the
rules for TLS.
"""

from msgspec import Raw

from duepoint.client.clients import AsyncClient, AsyncSetClient, ChangeOptions, Client, SetClient
from duepoint.client.problems import (
    AccessDenied,
    ApiProblem,
    ClientError,
    NothingThere,
    RequestRefused,
    ServiceBusy,
    ServiceUnreachable,
    StateConflict,
    TagMismatch,
)
from duepoint.client.rows import ItemPage, MemberRow, MemberSpec, RowAnswer, row_of
from duepoint.client.transport import NEVER, Retries, TokenInFile, TokenSource
from duepoint.model.answers import LetterView, MemberView, SetView

__all__ = [
    "NEVER",
    "AccessDenied",
    "ApiProblem",
    "AsyncClient",
    "AsyncSetClient",
    "ChangeOptions",
    "Client",
    "ClientError",
    "ItemPage",
    "LetterView",
    "MemberRow",
    "MemberSpec",
    "MemberView",
    "NothingThere",
    "Raw",
    "RequestRefused",
    "Retries",
    "RowAnswer",
    "ServiceBusy",
    "ServiceUnreachable",
    "SetClient",
    "SetView",
    "StateConflict",
    "TagMismatch",
    "TokenInFile",
    "TokenSource",
    "row_of",
]
