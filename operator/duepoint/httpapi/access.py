"""Who asks, and whether they may: by the API server, remembered for seconds.

A token is known by its hash only. What was granted is remembered for ten seconds, and asked for
again from the fifth on, while requests go on with what is known; where the API server cannot be
asked, or is slow, it stands until it is thirty seconds old. What was refused is remembered for two.
Who may not do something hears 403 only where they may read the set; others learn nothing: 404.
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from duepoint import shares, telemetry
from duepoint.httpapi.problems import OperationProblem
from duepoint.kube import errors as kube_errors
from duepoint.kube import port

_MOST_KNOWN = 20_000
#: Questions to the API server at a time, about tokens and about rights: a flood of made-up tokens
#: must not be one there, nor keep those waiting whose tokens are known.
_MOST_ASKED = 16
_LONGEST_TOKEN = 16_384
#: Tokens of an address that may turn out to be none: so many a second, and so many at once.
_REFUSED_PER_SECOND = 20.0
_REFUSED_AT_ONCE = 100.0
_MOST_ADDRESSES = 10_000
_NEVER = float("inf")
#: RFC 6750, 2.1. Of "a b" the API server would look at a alone, which we did not remember.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")

#: Of each answer 401.
CHALLENGE = (("WWW-Authenticate", 'Bearer realm="duepoint"'),)


# -- what the API server says: TokenReview and SubjectAccessReview ---------------------------------

_TOKENS_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_RIGHTS_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: A client waits for this.
_REVIEW_SECONDS = 5.0


class User(msgspec.Struct, frozen=True):
    """Whose token it is, as the API server names them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: Mapping[str, tuple[str, ...]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: User = User()
    audiences: tuple[str, ...] | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class Attributes(msgspec.Struct, frozen=True, rename="camel"):
    """What a user wants to do, as ``ResourceAttributes``."""

    namespace: str
    verb: str
    group: str
    resource: str
    subresource: str
    name: str


async def _user_of(api: port.Api, token: str, audiences: tuple[str, ...]) -> User | None:
    """Whose token it is; None where it is no valid one. Raises ``kube.errors.ApiError``.

    ``audiences``: the token has to be for one of them; empty = for the API server itself.
    """
    spec: dict[str, object] = {"token": token}
    if audiences:
        spec["audiences"] = audiences
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    try:
        answer = await api.request("POST", _TOKENS_PATH, body, timeout_seconds=_REVIEW_SECONDS)
    except kube_errors.Invalid:
        return None
    status = msgspec.json.decode(answer, type=_TokenReview).status
    if not status.authenticated or not status.user.username:
        return None
    if audiences and not set(audiences) & set(status.audiences or ()):
        return None  # an authenticator that does not know audiences
    return status.user


async def _may(api: port.Api, user: User, wanted: Attributes) -> bool:
    """Whether the user may do this. Raises ``kube.errors.ApiError``."""
    spec = {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups or (),
        "extra": user.extra or {},
        "resourceAttributes": wanted,
    }
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = await api.request("POST", _RIGHTS_PATH, body, timeout_seconds=_REVIEW_SECONDS)
    return msgspec.json.decode(answer, type=_AccessReview).status.allowed


# -- what is known ---------------------------------------------------------------------------------


class Caller:
    """A user whose token is valid."""

    __slots__ = ("asker", "identity", "key", "user")

    def __init__(self, user: User) -> None:
        self.user = user
        #: Stands for the user, whichever of their tokens they show: ``extra`` names the token.
        whose = msgspec.json.encode((user.username, user.uid))
        self.identity = hashlib.sha256(whose).digest()
        #: Who has a share of what is asked: the accounts of a namespace have one together.
        self.asker = user.username
        if user.username.startswith("system:serviceaccount:"):
            self.asker = user.username.rpartition(":")[0]
        #: Stands for all that the API server's decision depends on.
        facts = (user.username, user.uid, sorted(user.groups or ()), user.extra or {})
        text = msgspec.json.encode(facts, order="deterministic")
        self.key = hashlib.sha256(text).digest()


class _Refusals:
    """Who sent tokens that were none, and has to wait with further ones."""

    def __init__(self) -> None:
        #: What each address has left, and since when; it grows again.
        self._left: collections.OrderedDict[str, tuple[float, float]] = collections.OrderedDict()

    def check(self, owner: str) -> None:
        """Raise Problem TooManyRequests where this address has to wait."""
        if self._now(owner)[0] < 1:
            message = "too many tokens from this address were not valid; repeat it later"
            raise OperationProblem("TooManyRequests", message, retry_after_seconds=1)

    def count(self, owner: str) -> None:
        """A token of this address was none."""
        left, now = self._now(owner)
        self._left[owner] = left - 1, now
        self._left.move_to_end(owner)
        if len(self._left) > _MOST_ADDRESSES:
            self._left.popitem(last=False)

    def _now(self, owner: str) -> tuple[float, float]:
        now = asyncio.get_running_loop().time()
        left, since = self._left.get(owner, (_REFUSED_AT_ONCE, now))
        return min(_REFUSED_AT_ONCE, left + (now - since) * _REFUSED_PER_SECOND), now


class Access:
    """Knows callers, and what they may do."""

    def __init__(self, api: port.Api, audiences: tuple[str, ...] = ()) -> None:
        self._api = api
        self._audiences = audiences
        self._callers: Remembered[bytes, Caller | None] = Remembered(_MOST_KNOWN, TIMES)
        self._rights: Remembered[tuple[object, ...], bool] = Remembered(_MOST_KNOWN, TIMES)
        #: Until when all of some verbs are granted, so that a request needs one look.
        self._granted: dict[tuple[bytes, str, str, tuple[str, ...]], float] = {}
        self._token_places: shares.FairPlaces[str] = shares.FairPlaces(_MOST_ASKED)
        self._places: shares.FairPlaces[str] = shares.FairPlaces(_MOST_ASKED)
        self._refusals = _Refusals()

    async def caller(self, authorization: str, peer: str = "") -> Caller:
        """Who asks; raises Problem Unauthenticated, AuthenticationUnavailable, Overloaded.

        Nobody knows yet who sends a new token, so each address has its share of what is asked.
        """
        token = token_of(authorization)
        digest = hashlib.sha256(token.encode("latin-1")).digest()
        if (known := self._callers.known(digest)) is not None:
            found = known[1]
        else:
            found, owner = None, shares.owner_of(peer)
            if _TOKEN.fullmatch(token):
                if not self._callers.stands(digest):
                    self._refusals.check(owner)
                found = await self._callers.find(digest, lambda: self._review(token, owner), owner)
        if found is None:
            message = "the token is not valid: expired, revoked, or of another cluster or audience"
            raise OperationProblem("Unauthenticated", message, headers=CHALLENGE)
        return found

    async def _review(self, token: str, peer: str) -> Caller | None:
        await self._token_places.wait(peer)
        try:
            user = await _user_of(self._api, token, self._audiences)
        except kube_errors.ApiError as error:
            telemetry.logger.warning("tokens cannot be checked", error=str(error)[:300])
            raise _unavailable() from error
        finally:
            self._token_places.leave(peer)
        if user is None:
            self._refusals.count(peer)
            return None
        return Caller(user)

    async def check(
        self, caller: Caller, namespace: str, name: str, verbs: tuple[str, ...]
    ) -> None:
        """Raise Problem Forbidden, or NotFound where the caller may not even read the set."""
        all_of_them = caller.key, namespace, name, verbs
        if self._granted.get(all_of_them, 0.0) > asyncio.get_running_loop().time():
            return
        until = _NEVER
        for verb in verbs:
            wanted = _on_members(namespace, name, verb)
            if await self.may(caller, wanted):
                known = self._rights.known(_key(caller, wanted))
                until = min(until, 0.0 if known is None else known[0])
                continue
            if verb != "get" and await self.may(caller, _on_members(namespace, name, "get")):
                message = (
                    f"you may not {verb} schedulesets/schedules of this set; ask for a role "
                    "that has this verb, such as duepoint's edit role"
                )
                raise OperationProblem("Forbidden", message)
            raise OperationProblem("NotFound", "there is nothing here, or nothing that you may see")
        if len(self._granted) >= _MOST_KNOWN:
            self._granted.clear()
        self._granted[all_of_them] = until

    async def may(self, caller: Caller, wanted: Attributes) -> bool:
        """Whether the caller may do this; raises Problem AuthenticationUnavailable."""
        key = _key(caller, wanted)
        if (known := self._rights.known(key)) is not None:
            return known[1]

        async def ask() -> bool:
            await self._places.wait(caller.asker)
            try:
                return await _may(self._api, caller.user, wanted)
            except kube_errors.ApiError as error:
                telemetry.logger.warning("rights cannot be checked", error=str(error)[:300])
                raise _unavailable() from error
            finally:
                self._places.leave(caller.asker)

        return await self._rights.find(key, ask, caller.asker)


def _key(caller: Caller, wanted: Attributes) -> tuple[object, ...]:
    return caller.key, *msgspec.structs.astuple(wanted)


def _on_members(namespace: str, name: str, verb: str) -> Attributes:
    return Attributes(
        namespace=namespace,
        verb=verb,
        group="duepoint.dev",
        resource="schedulesets",
        subresource="schedules",
        name=name,
    )


def token_of(authorization: str) -> str:
    """The bearer token of the header; raises Problem Unauthenticated."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN:
        message = "send the header Authorization: Bearer and a token of this cluster"
        raise OperationProblem("Unauthenticated", message, headers=CHALLENGE)
    return token


def _unavailable() -> OperationProblem:
    message = "the Kubernetes API server cannot be asked whose token it is, or what they may do"
    return OperationProblem("Unavailable", message, retry_after_seconds=1)


#: Questions under way, of which each asker has a share; more are refused at once.
_MOST_WAITING = 1_000
#: Of what is remembered, so much may say no.
_REFUSED_PART = 10
#: How long a request waits for the renewal of a yes that is too old, and from one attempt to the
#: next where the server cannot be asked.
_PATIENCE_SECONDS = 1.0

KeyT = TypeVar("KeyT", bound=Hashable)
FoundT = TypeVar("FoundT")


class Times(NamedTuple):
    """For how many seconds an answer is kept.

    Attributes:
        granted: one that says yes.
        refused: one that says no.
        renewed: from this age on a yes is renewed while it is used; None = never.
        stands: a yes while its renewal fails or is slow.
    """

    granted: float
    refused: float
    renewed: float | None = None
    stands: float = 0.0


TIMES: Final = Times(granted=10.0, refused=2.0, renewed=5.0, stands=30.0)


class _Answer(Generic[FoundT]):
    """What was found, and its instants on the loop's clock."""

    __slots__ = ("found", "renewed_from", "stands_until", "until")

    def __init__(self, found: FoundT, now: float, times: Times) -> None:
        self.found = found
        self.until = now + (times.granted if found else times.refused)
        renewed = times.granted if times.renewed is None else times.renewed
        self.renewed_from = now + renewed if found else self.until
        self.stands_until = now + times.stands if found else self.until


class _Question(Generic[FoundT]):
    """One that is under way."""

    __slots__ = ("began", "task")

    def __init__(self, task: asyncio.Task[FoundT], began: float) -> None:
        self.task = task
        self.began = began


class Remembered(Generic[KeyT, FoundT]):
    """Remembers answers, the oldest forgotten first, and of those that say no a tenth as many.

    Equal questions at a time are one. An answer that says yes may be renewed while it still holds:
    requests go on with it and do not wait for a server that is slow. Where that server cannot be
    asked, a yes stands for some seconds more; a no, once it comes, ends it at once.
    """

    def __init__(self, most: int, times: Times) -> None:
        self._most = most
        self._times = times
        self._known: collections.OrderedDict[KeyT, _Answer[FoundT]] = collections.OrderedDict()
        #: The keys of those that say no: whoever asks for made-up things pushes out no other.
        self._refused: collections.OrderedDict[KeyT, None] = collections.OrderedDict()
        self._asked: dict[KeyT, _Question[FoundT]] = {}
        self._shares: shares.Shares[str] = shares.Shares(_MOST_WAITING)

    def known(self, key: KeyT) -> tuple[float, FoundT] | None:
        """The answer and until when it holds; None where there is none, or it is to be renewed."""
        answer = self._known.get(key)
        if answer is None or answer.renewed_from <= asyncio.get_running_loop().time():
            return None
        return answer.renewed_from, answer.found

    def stands(self, key: KeyT) -> bool:
        """Whether a yes is known that may be renewed."""
        answer = self._known.get(key)
        now = asyncio.get_running_loop().time()
        return answer is not None and bool(answer.found) and now < answer.stands_until

    async def find(
        self, key: KeyT, ask: Callable[[], Awaitable[FoundT]], asker: str = ""
    ) -> FoundT:
        """The answer, known or asked for; what ``ask`` raises is not remembered.

        Raises Problem Overloaded where too many questions are under way, for this asker.
        """
        now = asyncio.get_running_loop().time()
        answer = self._known.get(key)
        if answer is not None and now < answer.renewed_from:
            return answer.found
        if answer is None or now >= max(answer.until, answer.stands_until):
            return await asyncio.shield(self._question(key, ask, asker).task)
        try:
            question = self._question(key, ask, asker)
        except OperationProblem:
            return answer.found
        if now < answer.until:
            return answer.found
        return await self._renewed(question, answer, now)

    @staticmethod
    async def _renewed(question: _Question[FoundT], answer: _Answer[FoundT], now: float) -> FoundT:
        """The new answer; the old one, which is a yes, where the new one cannot be had soon."""
        patience = max(0.0, question.began + _PATIENCE_SECONDS - now)
        done, _ = await asyncio.wait({question.task}, timeout=patience)
        if not done or question.task.cancelled():
            return answer.found
        trouble = question.task.exception()
        if isinstance(trouble, OperationProblem):
            return answer.found
        return question.task.result()

    def _question(
        self, key: KeyT, ask: Callable[[], Awaitable[FoundT]], asker: str
    ) -> _Question[FoundT]:
        question = self._asked.get(key)
        if question is None:
            if not self._shares.has_room(asker):
                message = "too many tokens or rights to check"
                raise OperationProblem("Unavailable", message, retry_after_seconds=1)
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._ask(key, ask))
            self._shares.take(asker)
            task.add_done_callback(self._ended(key, asker))
            question = self._asked[key] = _Question(task, loop.time())
        return question

    def _ended(self, key: KeyT, asker: str) -> Callable[[asyncio.Task[FoundT]], None]:
        def ended(task: asyncio.Task[FoundT]) -> None:
            del self._asked[key]
            self._shares.give_back(asker)
            if not task.cancelled():
                task.exception()  # no request may be waiting

        return ended

    async def _ask(self, key: KeyT, ask: Callable[[], Awaitable[FoundT]]) -> FoundT:
        loop = asyncio.get_running_loop()
        try:
            found = await ask()
        except OperationProblem:
            if (known := self._known.get(key)) is not None:
                known.renewed_from = min(loop.time() + _PATIENCE_SECONDS, known.stands_until)
            raise
        self._remember(key, _Answer(found, loop.time(), self._times))
        return found

    def _remember(self, key: KeyT, answer: _Answer[FoundT]) -> None:
        self._known[key] = answer
        self._known.move_to_end(key)
        self._refused.pop(key, None)
        if not answer.found:
            self._refused[key] = None
            if len(self._refused) > max(1, self._most // _REFUSED_PART):
                del self._known[self._refused.popitem(last=False)[0]]
        if len(self._known) > self._most:
            self._refused.pop(self._known.popitem(last=False)[0], None)
