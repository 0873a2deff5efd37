"""Whose rights are asked about when one caller asks for very many."""

from __future__ import annotations

import asyncio

import pytest

from duepoint.httpapi import access
from duepoint.httpapi.problems import OperationProblem


def caller(name: str) -> access.Caller:
    return access.Caller(access.User(username=name, uid=f"uid of {name}"))


@pytest.fixture
async def slow(monkeypatch):
    """The API server answers no question about a loud user."""
    asked: list[str] = []

    async def may(_api, user, _wanted):
        asked.append(user.username)
        if "loud" in user.username:
            await asyncio.Event().wait()
        return True

    monkeypatch.setattr(access, "_may", may)
    return asked


async def flood(rights: access.Access, names: list[str], each: int) -> list[asyncio.Task]:
    tasks = [
        asyncio.create_task(rights.check(caller(name), "team", f"set-{number}", ("get",)))
        for name in names
        for number in range(each)
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def end(tasks: list[asyncio.Task]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_caller_who_asks_for_a_thousand_sets_keeps_no_other_waiting(slow):
    rights = access.Access(None)
    tasks = await flood(rights, ["loud"], 2_000)
    async with asyncio.timeout(10):
        await rights.check(caller("quiet"), "team", "set", ("get", "update"))
    assert slow[-2:] == ["quiet", "quiet"]
    await end(tasks)


async def test_the_accounts_of_a_namespace_have_one_share(slow):
    rights = access.Access(None)
    accounts = [f"system:serviceaccount:loud:account-{number}" for number in range(50)]
    tasks = await flood(rights, accounts, 10)
    async with asyncio.timeout(10):
        await rights.check(caller("system:serviceaccount:quiet:one"), "team", "set", ("get",))
    assert len(slow) < 16
    await end(tasks)


async def test_an_address_that_sends_made_up_tokens_keeps_no_other_waiting(monkeypatch):
    async def user_of(_api, token, _audiences):
        if token.startswith("made-up"):
            await asyncio.Event().wait()
        return access.User(username=token, uid="1")

    monkeypatch.setattr(access, "_user_of", user_of)
    rights = access.Access(None)
    tasks = [
        asyncio.create_task(rights.caller(f"Bearer made-up-{number}", "10.0.0.1"))
        for number in range(2_000)
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        found = await rights.caller("Bearer honest", "10.0.0.2")
    assert found.user.username == "honest"
    await end(tasks)


async def test_nothing_is_asked_or_remembered_of_what_can_be_no_token(monkeypatch):
    """It costs a client nothing to send one, and must not push out what is known of others."""
    monkeypatch.setattr(access, "_user_of", None)
    rights = access.Access(None)
    for number in range(100):
        with pytest.raises(OperationProblem) as refused:
            await rights.caller(f"Bearer a b {number}")
        assert refused.value.code == "Unauthenticated"
    assert not rights._callers._no
