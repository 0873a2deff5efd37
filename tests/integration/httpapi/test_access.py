"""Who may do what: tokens and rights of a real API server, asked by the API's own account."""

from __future__ import annotations

import asyncio
import time

import pytest

from duepoint.httpapi import operations
from tests.support import apiscene, proxy

AT = {"at": "2090-12-24T18:00:00Z"}
VERBS = ("get", "list", "create", "update", "patch", "delete", "trigger", "replay")
ABSENT, TAG = {"If-None-Match": "*"}, {"If-Match": '"00000000"'}
NDJSON = {"Content-Type": "application/x-ndjson"}

#: Every operation as a request, by its name: method, path below the set, body, headers, verbs.
REQUESTS = {
    "getSet": ("GET", "", None, {}, ("get",)),
    "listMembers": ("GET", "/schedules", None, {}, ("list",)),
    "createOneOff": ("POST", "/schedules", AT, {}, ("create",)),
    "getMember": ("GET", "/schedules/kept", None, {}, ("get",)),
    "putMember": ("PUT", "/schedules/a", AT, {}, ("create", "update")),
    "putMember, new": ("PUT", "/schedules/b", AT, ABSENT, ("create",)),
    "putMember, known": ("PUT", "/schedules/kept", AT, TAG, ("update",)),
    "patchMember": ("PATCH", "/schedules/kept", {"jitter": "1s"}, {}, ("patch",)),
    "deleteMember": ("DELETE", "/schedules/c", None, {}, ("delete",)),
    "nextTimes": ("GET", "/schedules/kept/next", None, {}, ("get",)),
    "triggerMember": ("POST", "/schedules/kept/trigger", {}, {}, ("trigger",)),
    "bulkUpsert": (
        "POST", "/schedules:bulkUpsert", b'{"id":"d","at":"2090-12-24T18:00:00Z"}', NDJSON,
        ("create", "update"),
    ),
    "bulkDelete": ("POST", "/schedules:bulkDelete", b'{"id":"d"}', NDJSON, ("delete",)),
    "listDue": ("GET", "/due", None, {}, ("list",)),
    "listUnacknowledged": ("GET", "/unacknowledged", None, {}, ("list",)),
    "exportMembers": ("GET", "/export", None, {}, ("list",)),
    "listDeadLetters": ("GET", "/deadletters", None, {}, ("list",)),
    "replayDeadLetters": (
        "POST", "/deadletters:replay", {"ids": ["1.0.1-1"]}, {}, ("replay",),
    ),
}  # fmt: skip


async def ask(scene, name, as_, base=""):
    method, path, body, headers, _ = REQUESTS[name]
    return await scene.ask(method, (base or scene.base) + path, body, as_=as_, headers=headers)


def is_let_in(answer):
    """Whether the rights sufficed; the request itself may be refused for another reason."""
    if answer.status < 400:
        return True
    return answer.code not in ("Unauthenticated", "Forbidden", "NotFound")


def test_every_operation_is_among_the_requests():
    names = {name.partition(",")[0] for name in REQUESTS}
    assert names == {operation.name for operation in operations.OPERATIONS}


async def test_no_log_holds_a_token(scene):
    await scene.ask("PUT", scene.member("a"), AT)
    await scene.ask("GET", scene.base, as_="", headers={"Authorization": "Bearer made-up-token"})
    said = scene.process.log.read_text()
    assert "made-up-token" not in said
    assert scene.tokens["editor"] not in said


# -- rights --------------------------------------------------------------------------------------


async def test_each_operation_needs_its_verbs_and_no_other(scene):
    await scene.ask("PUT", scene.member("kept"), AT)
    for verb in VERBS:
        await add(scene, f"only-{verb}", (verb,))
        await add(scene, f"all-but-{verb}", tuple(set(VERBS) - {verb}))
    await add(scene, "create-and-update", ("create", "update"))
    for name, (*_, needed) in REQUESTS.items():
        for verb in VERBS:
            only = await ask(scene, name, f"only-{verb}")
            assert is_let_in(only) == (needed == (verb,)), (name, verb, only)
            others = await ask(scene, name, f"all-but-{verb}")
            if verb not in needed:
                assert is_let_in(others), (name, verb, others)
            else:
                expected = "NotFound" if verb == "get" else "Forbidden"
                assert others.code == expected, (name, verb, others)
    assert is_let_in(await ask(scene, "bulkUpsert", "create-and-update"))


async def test_the_charts_roles_let_viewers_read_and_editors_change(scene):
    await scene.ask("PUT", scene.member("kept"), AT)
    for name, (*_, needed) in REQUESTS.items():
        answer = await ask(scene, name, "viewer")
        if set(needed) <= {"get", "list"}:
            assert answer.status == 200, (name, answer)
        else:
            assert (answer.status, answer.code) == (403, "Forbidden"), (name, answer)
    assert list(await scene.members()) == ["kept"]
    for name in REQUESTS:
        answer = await ask(scene, name, "editor")
        assert is_let_in(answer), (name, answer)


async def test_a_role_for_one_set_gives_no_other(scene):
    scene.tokens["clerk"] = scene.plane.service_account_token(scene.namespace, "clerk")
    scene.roles.grant(scene.namespace, "clerk", VERBS, scene.record.name)
    former = scene.base
    assert (await scene.ask("PUT", scene.member("a"), AT, as_="clerk")).status == 201
    await scene.store(name="others", uid="5a0c3a1e-0000-4000-8000-000000000000")
    assert (await scene.ask("GET", scene.base, as_="clerk")).code == "NotFound"
    assert (await scene.ask("GET", scene.base)).status == 200
    assert (await scene.ask("GET", former, as_="clerk")).status == 200


async def test_while_the_api_server_cannot_be_asked_only_the_known_are_let_in(
    control_plane, kube_namespace, own_server, tmp_path
):
    host, _, port = control_plane.server.removeprefix("https://").partition(":")
    async with proxy.between(host, int(port)) as between, apiscene.open_scene(
        control_plane, kube_namespace, own_server, tmp_path,
        api_server=f"https://127.0.0.1:{between.port}",
    ) as scene:  # fmt: skip
        assert (await scene.ask("PUT", scene.member("a"), AT)).status == 201
        await between.refuse()
        assert (await scene.ask("PUT", scene.member("b"), AT)).status == 201
        unknown = await scene.ask("GET", scene.base, as_="viewer")
        assert (unknown.status, unknown.code) == (503, "AuthenticationUnavailable")
        assert int(unknown.headers["retry-after"]) >= 1
        await between.accept()
        await until(scene, "viewer", lambda answer: answer.status == 403, 5)


async def until(scene, account, holds, seconds):
    """An answer to the account's change that is so, within these seconds."""
    deadline = time.monotonic() + seconds
    while not holds(answer := await scene.ask("PUT", scene.member(account), AT, as_=account)):
        if time.monotonic() > deadline:
            pytest.fail(f"after {seconds} s still {answer}")
        await asyncio.sleep(0.2)


async def add(scene, account, verbs):
    """A new account with these verbs on members."""
    scene.tokens[account] = await asyncio.to_thread(
        scene.plane.service_account_token, scene.namespace, account
    )
    await asyncio.to_thread(scene.roles.grant, scene.namespace, account, verbs)
