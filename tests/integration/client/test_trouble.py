"""What the clients do when the API, or the way to it, is not well."""

from __future__ import annotations

import pytest
from aiohttp import web

from duepoint import client
from duepoint.client import MemberRow, MemberSpec
from tests.fakes import memoryapi
from tests.support import certificates

FAR = "2090-12-24T18:00:00Z"
SPEC = MemberSpec(delay="1h")


def rows(count):
    return (MemberRow(id=f"m{number}", at=FAR) for number in range(count))


@pytest.mark.parametrize(
    "fault",
    [memoryapi.busy(503), memoryapi.busy(429), memoryapi.busy(502), memoryapi.hang_up],
    ids=["unwell", "too many", "bad gateway", "hang-up"],
)
def test_a_change_is_repeated_and_one_that_must_not_be_made_twice_under_the_same_key(
    reminders, api, fault
):
    api.faults.extend([fault, fault, None, fault, fault])
    reminders.put("a", MemberSpec(at="2090-12-24T18:00:00Z"))
    assert ["Idempotency-Key" in headers for _, _, headers in api.requests] == [False] * 3

    reminders.create(SPEC)
    assert len(api.members) == 2
    assert len({headers["Idempotency-Key"] for _, _, headers in api.requests[3:]}) == 1


@pytest.mark.parametrize("change", ["put", "patch"])
def test_a_delay_counts_once_however_often_it_is_sent(reminders, api, change):
    reminders.put("a", MemberSpec(at="2090-12-24T18:00:00Z"))
    api.faults.extend([memoryapi.busy(503), memoryapi.hang_up])
    if change == "put":
        reminders.put("a", SPEC)
    else:
        reminders.patch("a", {"at": None, "delay": "1h"})

    keys = [headers.get("Idempotency-Key") for _, _, headers in api.requests[1:]]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert keys[0]


def test_a_one_off_whose_answer_was_lost_is_made_once(reminders, api):
    async def lose_the_answer(request):
        answer = await api._create(request)
        api.answers[request.headers["Idempotency-Key"]] = (201, answer.text)
        request.transport.close()
        return web.Response()

    api.faults.append(lose_the_answer)
    made = reminders.create(SPEC)
    assert list(api.members) == [made.id]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, client.RequestRefused), (403, client.AccessDenied), (404, client.NothingThere),
        (409, client.StateConflict), (410, client.NothingThere), (412, client.TagMismatch),
        (413, client.RequestRefused), (422, client.RequestRefused),
    ],
)  # fmt: skip
def test_a_refusal_is_not_repeated(reminders, api, status, kind):
    async def refuse(_):
        return memoryapi.problem(status, "SomeCode", "at is not a time", "at")

    api.faults.append(refuse)
    with pytest.raises(kind) as caught:
        reminders.put("a", SPEC)
    assert (caught.value.code, caught.value.field, caught.value.status) == (
        "SomeCode", "at", status,
    )  # fmt: skip
    assert len(api.requests) == 1


def test_a_redirect_is_not_followed_because_it_would_take_the_token_along(reminders, api):
    async def redirect(_):
        return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})

    api.faults.append(redirect)
    with pytest.raises(client.RequestRefused) as caught:
        reminders.get("a")
    assert caught.value.status == 302


def test_a_server_that_says_nothing_is_left_in_time(connect, api):
    async def sleep(_):
        import asyncio

        await asyncio.sleep(2)
        return web.Response()

    api.faults.append(sleep)
    impatient = connect(retries=client.NEVER, timeout_seconds=0.2)
    with pytest.raises(client.ServiceUnreachable, match="no answer in time"):
        impatient.schedule_set("shop", "reminders").get("a")


# -- tokens --------------------------------------------------------------------------------------


def test_a_token_that_was_replaced_is_read_again(connect, api, tmp_path):
    api.store("a", {"delay": "1h"})
    path = tmp_path / "token"
    path.write_text("good\n")
    reminders = connect(token=client.TokenInFile(path)).schedule_set("shop", "reminders")
    reminders.get("a")
    api.tokens = {"new"}
    path.write_text("new\n")

    assert reminders.get("a").id == "a"
    assert [h["Authorization"] for _, _, h in api.requests] == [
        "Bearer good", "Bearer good", "Bearer new",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "url", ["", "api", "ftp://api", "http://", "http://u:p@api", "http://api?x=1", "http://api:x",
     "http://api:99999", "http://[::1", "http://a b"],
)  # fmt: skip
def test_what_is_no_url_is_refused_without_repeating_a_password(connect, url):
    with pytest.raises(ValueError, match="write one such as") as caught:
        connect(url or " ")
    assert "u:p" not in str(caught.value)


# -- TLS -----------------------------------------------------------------------------------------


@pytest.fixture
def tls_api(tmp_path):
    authority = certificates.Authority()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    (tmp_path / "other.crt").write_bytes(certificates.Authority("others").pem)
    memory = memoryapi.MemoryApi()
    memory.store("a", {"delay": "1h"})
    with memory.serving(authority.signs("127.0.0.1").serving(tmp_path)):
        yield memory, tmp_path


def test_a_server_of_the_given_authority_is_trusted_and_no_other(connect, tls_api):
    memory, folder = tls_api

    def asked(**given):
        made = connect(memory.url, retries=client.NEVER, **given)
        return made.schedule_set("shop", "reminders").get("a")

    assert asked(ca_file=folder / "ca.crt").id == "a"
    for given in ({}, {"ca_file": folder / "other.crt"}):
        with pytest.raises(client.ServiceUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
            asked(**given)


# -- many rows -----------------------------------------------------------------------------------


def test_rows_whose_answer_was_cut_off_are_sent_again(reminders, api):
    api.cut_after = [3, 1]
    answers = list(reminders.upsert(rows(10)))

    assert [answer.id for answer in answers] == [f"m{n}" for n in range(10)]
    assert len(api.members) == 10
    assert len(api.requests) == 3


# -- waits ---------------------------------------------------------------------------------------
