"""Who may do what: tokens and rights of a real API server, asked by the API's own account."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import time

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from duepoint.httpapi import access, operations
from tests.support import apiscene, proxy

AT = {"at": "2090-12-24T18:00:00Z"}
VERBS = ("get", "list", "create", "update", "patch", "delete", "trigger", "replay")
ABSENT, TAG = {"If-None-Match": "*"}, {"If-Match": '"00000000"'}
NDJSON = {"Content-Type": "application/x-ndjson"}
#: Longest until a change of rights or tokens is seen: what is remembered, and some of ours.
GRANT_ENDS = access.YES_SECONDS + 3
REFUSAL_ENDS = access.NO_SECONDS + 3

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


# -- tokens --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Signer:
    """Makes tokens of a cluster, or of another one."""

    key: ec.EllipticCurvePrivateKey
    kid: str

    def token(self, claims, **changes):
        header = {"alg": "ES256", "kid": self.kid}
        text = f"{part(header)}.{part({**claims, **changes})}"
        signed = self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))
        numbers = utils.decode_dss_signature(signed)
        return f"{text}.{encoded(b''.join(number.to_bytes(32, 'big') for number in numbers))}"


def account_of(claims, **changes):
    """The claims for another account, which is what the API server goes by."""
    named = claims["kubernetes.io"]
    account = {**named["serviceaccount"], **changes}
    return {**claims, "kubernetes.io": {**named, "serviceaccount": account}}


def part(value):
    return encoded(json.dumps(value).encode())


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text):
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


async def test_only_a_token_of_this_cluster_that_is_valid_now_is_taken(scene):
    header, payload, signature = scene.tokens["editor"].split(".")
    claims = decoded(payload)
    pem = (scene.plane.folder / "credentials" / "service-account.key").read_bytes()
    own = Signer(serialization.load_pem_private_key(pem, None), decoded(header)["kid"])
    other = Signer(ec.generate_private_key(ec.SECP256R1()), own.kid)
    now = int(time.time())
    admin = scene.plane.admin()
    account = f"/api/v1/namespaces/{scene.namespace}/serviceaccounts/editor"
    wish = {"spec": {"expirationSeconds": 3600, "audiences": ["vault"]}}
    elsewhere = admin.post(f"{account}/token", wish)["status"]["token"]
    others = {**claims, "sub": claims["sub"] + "s"}
    bad = {
        "none at all": None,
        "another scheme": "Basic ZWRpdG9yOnNlY3JldA==",
        "the scheme alone": "Bearer",
        "two tokens": f"Bearer {scene.tokens['editor']} {scene.tokens['editor']}",
        "no token of any kind": "Bearer abc",
        "20 kB": "Bearer " + "a" * 20_000,
        "expired": "Bearer " + own.token(claims, exp=now - 300, iat=now - 3900, nbf=now - 3900),
        "not yet valid": "Bearer " + own.token(claims, nbf=now + 3600),
        "of another cluster": "Bearer " + other.token(claims),
        "unsigned": f"Bearer {part({'alg': 'none'})}.{payload}.",
        "with another's signature": f"Bearer {header}.{part(others)}.{signature}",
        "for another audience": f"Bearer {elsewhere}",
        "of an account that is not there": "Bearer " + own.token(account_of(claims, name="nobody")),
        "of another life of the account": "Bearer " + own.token(
            account_of(claims, uid="5a0c3a1e-0000-4000-8000-000000000000")
        ),
    }  # fmt: skip
    for what, header_ in bad.items():
        for method, path, body in (
            ("GET", scene.base, None),
            ("PUT", scene.member("a"), AT),
            ("GET", scene.base.replace(scene.record.name, "unknown"), None),
        ):
            headers = {} if header_ is None else {"Authorization": header_}
            answer = await scene.ask(method, path, body, as_="", headers=headers)
            assert answer.status == 401, (what, answer)
            assert answer.code == "Unauthenticated", (what, answer)
            assert answer.headers["www-authenticate"] == 'Bearer realm="duepoint"', what
            assert scene.namespace not in answer.json["detail"], what
    # The same hand makes a token that is taken, so each of those was refused for what it says.
    good = {"Authorization": "Bearer " + own.token(claims)}
    assert (await scene.ask("GET", scene.base, as_="", headers=good)).status == 200
    assert await scene.members() == {}


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


async def test_who_may_not_read_a_set_does_not_learn_whether_it_is_there(scene):
    """The answer for a set that is there, and for one that is not, in either namespace, is one."""
    await scene.ask("PUT", scene.member("kept"), AT)
    other = await asyncio.to_thread(scene.plane.create_namespace)
    await add(scene, "writer", ("create", "update", "patch", "delete", "trigger"))
    scene.tokens["neighbour"] = scene.plane.service_account_token(other, "neighbour")
    scene.roles.bind(other, "neighbour", "edit")
    unknown = scene.base.replace(scene.record.name, "unknown")
    nowhere = "/v1/namespaces/nowhere/schedulesets/unknown"
    try:
        for name, (*_, needed) in REQUESTS.items():
            callers = ["stranger", "neighbour"]
            if "get" in needed or "list" in needed:
                callers.append("writer")
            for caller in callers:
                seen = set()
                for base in (scene.base, unknown, nowhere):
                    answer = await ask(scene, name, caller, base)
                    assert (answer.status, answer.code) == (404, "NotFound"), (name, caller)
                    said = answer.json
                    del said["requestId"]
                    headers = dict(answer.headers)
                    # "connection" says whether the body was there when the rights were known.
                    for varying in ("x-request-id", "date", "content-length", "connection"):
                        headers.pop(varying, None)
                    seen.add(json.dumps([said, headers], sort_keys=True))
                assert len(seen) == 1, (name, caller, seen)
    finally:
        scene.plane.discard_namespace(other)
    assert list(await scene.members()) == ["kept"]


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


async def test_no_caller_chooses_where_a_member_fires(scene):
    """With every verb on members: the target stands in the set, which is an object of its own."""
    targets = {
        "webhook": {"url": "https://elsewhere.example/"},
        "stream": {"name": "others"},
        "kafka": {"topic": "others"},
        "jobTemplate": {"spec": {}},
    }
    for field, target in targets.items():
        answer = await scene.ask("PUT", scene.member("a"), {**AT, field: target})
        assert (answer.status, answer.code) == (400, "InvalidField"), (field, answer)
        assert answer.json["field"] == field
    assert await scene.members() == {}


async def test_rights_and_tokens_that_are_withdrawn_end_within_seconds(scene):
    await add(scene, "leaving", VERBS)
    await add(scene, "deleted", VERBS)
    for name in ("leaving", "deleted"):
        assert (await scene.ask("PUT", scene.member(name), AT, as_=name)).status == 201
    before = await scene.ask("PUT", scene.member("arriving"), AT, as_="stranger")
    assert before.code == "NotFound"
    began = time.monotonic()
    scene.roles.revoke(scene.namespace, "leaving")
    scene.plane.admin().delete(f"/api/v1/namespaces/{scene.namespace}/serviceaccounts/deleted")
    scene.roles.grant(scene.namespace, "stranger", VERBS)
    await until(scene, "stranger", lambda answer: answer.status in (200, 201), REFUSAL_ENDS)
    await until(scene, "leaving", lambda answer: answer.status == 404, GRANT_ENDS)
    await until(scene, "deleted", lambda answer: answer.status == 401, GRANT_ENDS)
    assert time.monotonic() - began < GRANT_ENDS


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
        assert (unknown.status, unknown.code) == (503, "Unavailable")
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
