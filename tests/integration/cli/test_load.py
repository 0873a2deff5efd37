"""``duepoint load``: what it submits, what it hears, and what it says of it."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import threading
import time

import pytest

from tests.support.redisserver import free_port

pytestmark = pytest.mark.usefixtures("environment")


@pytest.fixture
def port():
    return free_port()


class Firing:
    """Fires what is stored at its due time, as a worker does; some not, some twice."""

    def __init__(self, api, port, *, late_ms=5, lost=(), doubled=(), early=()):
        self._port, self._late_ms = port, late_ms
        self._lost, self._doubled, self._early = lost, doubled, early
        api.on_stored = self.stored

    def stored(self, member):
        number = int(member["id"].rpartition("-")[2])
        if number in self._lost:
            return
        late_ms = -800 if number in self._early else self._late_ms
        due = dt.datetime.fromisoformat(member["at"]).timestamp() + late_ms / 1000
        times = 2 if number in self._doubled else 1
        for _ in range(times):
            threading.Timer(max(due - time.time(), 0), self.post, [member]).start()

    def post(self, member):
        body = {"type": "schedule.fired", "data": {"schedule": {"name": member["id"]}}}
        post(self._port, json.dumps(body).encode())


def post(port, body, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/", body=body, headers=headers)
    return connection.getresponse().status


def arguments(port, **given):
    options = {"count": 10, "within": "500ms", "wait": "60s", **given}
    listed = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return ["load", "reminders", "--receive", f"127.0.0.1:{port}", *listed]


def test_all_arrive_and_it_says_how_late(duepoint, api, port):
    Firing(api, port)
    answer = duepoint(*arguments(port, output="json"))

    assert answer.code == 0
    (row,) = answer.rows
    assert {name: row[name] for name in ("count", "accepted", "arrived", "lost", "doubled")} == {
        "count": 10, "accepted": 10, "arrived": 10, "lost": 0, "doubled": 0,
    }  # fmt: skip
    assert 4 <= row["latenessMs"]["p50"] <= row["latenessMs"]["max"]


def test_what_is_lost_doubled_and_early_is_found_and_what_is_left_is_removed(duepoint, api, port):
    Firing(api, port, lost=(3, 4), doubled=(5,), early=(6,))
    answer = duepoint(*arguments(port, wait="4s"))

    assert answer.code == 1
    assert "arrived    8; lost 2, doubled 1, early 1" in answer.out
    left = {id_.rpartition("-")[2] for id_ in api.members}
    assert not left & {"000003", "000004"}


# -- the receiver --------------------------------------------------------------------------------
