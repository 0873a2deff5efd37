"""The client, the commands and the examples on a whole installation with the HTTP API."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time

import pytest

from duepoint.client import ChangeOptions, Client, MemberRow, MemberSpec, NothingThere, TagMismatch
from tests.support.receiver import status
from tests.support.stack import ROOT, eventually

SETS = "/apis/duepoint.dev/v1alpha1/namespaces/{ns}/schedulesets/{name}"
FAR = "2030-01-01T09:00:00Z"


@pytest.fixture
async def place(stack):
    """An installation with the API and the set ``reminders``, whose webhook is the receiver."""
    await stack.running()
    api = stack.http_api()
    await api.wait_until_ready()
    made = Place(stack, stack.api_url, await stack.member_token())
    await made.apply("reminders", webhook={"url": f"http://127.0.0.1:{stack.receiver_port}/hook"})
    return made


class Place:
    def __init__(self, stack, server, token):
        self.stack, self.server, self.token = stack, server, token
        self.namespace = stack.namespace

    async def apply(self, name, **spec):
        body = {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": "ScheduleSet",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }
        await self.stack.api.request(
            "PATCH", SETS.format(ns=self.namespace, name=name), body,
            query={"fieldManager": "e2e", "force": "true"},
            content_type="application/apply-patch+yaml",
        )  # fmt: skip
        await self.wait_until_ready(name)

    async def wait_until_ready(self, name):
        async def is_ready():
            path = SETS.format(ns=self.namespace, name=name)
            found = json.loads(await self.stack.api.request("GET", path)).get("status", {})
            return any(
                (one["type"], one["status"]) == ("Ready", "True")
                for one in found.get("conditions", ())
            )

        await eventually(is_ready, f"the set {name} is ready")

    @contextlib.contextmanager
    def client(self, name="reminders"):
        with Client(self.server, token=self.token) as made:
            yield made.schedule_set(self.namespace, name)

    def command(self, *arguments):
        environment = {
            **os.environ, "DUEPOINT_API_URL": self.server, "DUEPOINT_API_TOKEN": self.token,
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-m", "duepoint", *arguments, "-n", self.namespace],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    async def run(self, *arguments):
        """Exit code, standard output, standard error."""
        process = self.command(*arguments)
        out, said = await asyncio.to_thread(process.communicate, timeout=120)
        return process.returncode, out, said


def loaded(*parts):
    path = ROOT.joinpath("examples", *parts)
    found = importlib.util.spec_from_file_location(f"e2e_{path.stem}", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


# -- the client ----------------------------------------------------------------------------------


def use_every_method(reminders):
    daily = MemberSpec(schedule="0 9 * * *", time_zone="Europe/Rome", payload={"n": 1})
    put = reminders.put("a", daily)
    assert reminders.get("a").etag == put.etag == reminders.put("a", daily).etag
    assert (put.schedule, put.time_zone, put.payload) == ("0 9 * * *", "Europe/Rome", {"n": 1})
    assert put.next_due_time is not None
    patched = reminders.patch("a", {"payload": {"n": 2}})
    assert (patched.payload, patched.schedule) == ({"n": 2}, "0 9 * * *")
    with pytest.raises(TagMismatch):
        reminders.put("a", daily, options=ChangeOptions(if_match=put.etag))
    with pytest.raises(TagMismatch):
        reminders.put("a", daily, options=ChangeOptions(if_absent=True))
    assert len(reminders.next_times("a", 3)) == 3
    made = reminders.create(MemberSpec(at=FAR))
    assert reminders.get(made.id).at.startswith("2030-01-01T09:00:00")
    answers = list(reminders.upsert(MemberRow(id=f"m{n}", at=FAR) for n in range(2_500)))
    assert {answer.outcome for answer in answers} == {"Created"}
    assert [answer.id for answer in answers] == [f"m{n}" for n in range(2_500)]
    assert {one.outcome for one in reminders.upsert([MemberRow(id="m1", at=FAR)])} == {"Unchanged"}
    assert len(list(reminders.iterate("m"))) == 2_500
    assert reminders.info().members == 2_502
    due = reminders.due("2029-12-31T00:00:00Z", "2030-01-02T00:00:00Z", limit=10)
    assert len(due.items) == 10
    assert due.next
    assert reminders.dead_letters().items == ()
    removed = [one.outcome for one in reminders.delete_many(["m1", "m2", "zz"])]
    assert removed == ["Removed", "Removed", "Absent"]
    assert reminders.delete("a") is True
    assert reminders.delete("a") is False
    with pytest.raises(NothingThere):
        reminders.get("a")


async def test_every_method_of_the_client(place):
    with place.client() as reminders:
        await asyncio.to_thread(use_every_method, reminders)


async def test_a_request_that_is_repeated_after_its_one_off_has_fired_fires_nothing(place):
    """The answer to the first one was lost."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    soon = MemberSpec(at=now, payload=1)

    def repeat(reminders):
        again = reminders.put("a", soon)
        with pytest.raises(TagMismatch):
            reminders.put("a", soon, options=ChangeOptions(if_absent=True))
        (row,) = reminders.upsert([MemberRow(id="a", at=now, payload=1)])
        return again, row, reminders.info().members

    with place.client() as reminders:
        first = await asyncio.to_thread(reminders.put, "a", soon)
        await place.stack.wait_for_deliveries(1)

        async def has_left():
            return (await asyncio.to_thread(reminders.info)).members == 0

        await eventually(has_left, "the one-off has left its set")
        again, row, members = await asyncio.to_thread(repeat, reminders)
    assert (first.state, again.state, again.next_due_time) == ("Active", "Completed", None)
    assert (row.outcome, members) == ("Unchanged", 0)
    await asyncio.sleep(1)
    assert len(await place.stack.wait_for_deliveries(1)) == 1


# -- export, import, restore ---------------------------------------------------------------------


async def test_a_set_is_restored_from_its_export_after_redis_has_lost_everything(place, tmp_path):
    count = 3_000

    def fill(reminders):
        rows = (
            MemberRow(id=f"order-{n}", schedule="0 9 * * MON", payload={"n": n})
            for n in range(count)
        )
        assert all(not answer.is_refused for answer in reminders.upsert(rows))
        return {member.id: member.payload for member in reminders.iterate()}

    with place.client() as reminders:
        before = await asyncio.to_thread(fill, reminders)
    assert len(before) == count
    path = tmp_path / "reminders.ndjson"
    code, out, said = await place.run("set", "export", "reminders", str(path))
    assert (code, said) == (0, "")
    assert f"{count:,} members exported" in out

    with place.stack.redis.client() as server:
        server.flushall()

    outcomes = []

    async def is_imported():
        # Until the operator has stored the set again, the API knows none of this name.
        outcomes.append(await place.run("set", "import", "reminders", str(path), "-o", "json"))
        return outcomes[-1][0] == 0

    await eventually(is_imported, "the set is back and takes its members")
    written = json.loads(outcomes[-1][1])
    # One that broke off because the set was not back on all shards has written some of them.
    assert written["created"] + written["unchanged"] == count
    with place.client() as reminders:
        after = await asyncio.to_thread(
            lambda: {member.id: member.payload for member in reminders.iterate()}
        )
    assert after == before
    code, out, _ = await place.run("set", "import", "reminders", str(path), "-o", "json")
    assert (code, json.loads(out)["unchanged"]) == (0, count)


# -- load ----------------------------------------------------------------------------------------


# -- examples ------------------------------------------------------------------------------------


async def test_the_shop_reminds_who_has_not_paid_and_nobody_else(place, tmp_path):
    shops = loaded("14-shop", "shop.py")
    database = str(tmp_path / "shop.db")
    receiving = shops.Shop(database, None)
    mails = []

    async def deliver(request, writer):
        receiving.receive(json.loads(request.body)["data"])
        mails[:] = receiving.mails()
        await status(204)(request, writer)

    place.stack.answer = deliver

    def business():
        with place.client() as reminders:
            shop = shops.Shop(database, reminders)
            shop.order(17, "ada", "3s")
            shop.order(18, "bob", "3s")
            assert shop.pay(18) is True

    await asyncio.to_thread(business)

    async def has_mail():
        return bool(mails)

    await eventually(has_mail, "ada has a mail")
    await asyncio.sleep(1)
    assert mails == [("ada", "You have not paid order 17 yet.")]

    def rest():
        with place.client() as reminders:
            return list(reminders.iterate())

    assert await asyncio.to_thread(rest) == []
