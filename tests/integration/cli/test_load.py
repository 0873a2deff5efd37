"""``duepoint load``: what it submits, what it hears, and what it says of it."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import socket
import threading
import time
from xml.etree import ElementTree as ET

import pytest

from duepoint.cli.load import drawing, lateness, plan, receiver

pytestmark = pytest.mark.usefixtures("environment")

SECOND_US = 1_000_000


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("POST", "/", body=body, headers=headers)
    return connection.getresponse().status


def arguments(port, **given):
    options = {"count": 10, "within": "500ms", "lead": "1s", "wait": "20s", **given}
    listed = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return ["load", "reminders", "--receive", f"127.0.0.1:{port}", *listed]


@pytest.mark.parametrize("submit", ["ahead", "as-due"])
def test_all_arrive_and_it_says_how_late(duepoint, api, port, tmp_path, submit):
    Firing(api, port)
    picture = tmp_path / "load.svg"
    answer = duepoint(*arguments(port, svg=picture, output="json", submit=submit))

    assert answer.code == 0
    (row,) = answer.rows
    assert {name: row[name] for name in ("count", "accepted", "arrived", "lost", "doubled")} == {
        "count": 10, "accepted": 10, "arrived": 10, "lost": 0, "doubled": 0,
    }  # fmt: skip
    assert 4 <= row["latenessMs"]["p50"] <= row["latenessMs"]["max"]
    assert ET.parse(picture).getroot().tag.endswith("svg")
    requests = [path for method, path, _ in api.requests if method in ("POST", "PUT")]
    assert sum("bulkUpsert" in path for path in requests) == (1 if submit == "ahead" else 0)


def test_what_is_lost_doubled_and_early_is_found_and_what_is_left_is_removed(duepoint, api, port):
    Firing(api, port, lost=(3, 4), doubled=(5,), early=(6,))
    answer = duepoint(*arguments(port, wait="4s"))

    assert answer.code == 1
    assert "arrived    8; lost 2, doubled 1, early 1" in answer.out
    left = {id_.rpartition("-")[2] for id_ in api.members}
    assert not left & {"000003", "000004"}


def test_refused_ones_are_no_lost_ones(duepoint, api, port):
    api.faults.append(None)
    answer = duepoint(*arguments(port, count=2, payload='{"a": 1}', lead="1s"), "-n", "nowhere")
    assert answer.code == 2
    assert "NotFound" in answer.err


def test_where_nothing_arrives_it_says_what_to_look_at(duepoint, api, port):
    answer = duepoint(*arguments(port, wait="100ms"))

    assert answer.code == 1
    assert f"no event arrived at 127.0.0.1:{port}" in answer.err
    assert api.members == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"count": 0}, "--count"),
        ({"within": "2d"}, "--within: is more than a day"),
        ({"pattern": "evn"}, "--pattern"),
        ({"payload": "{"}, "--payload"),
    ],
)
def test_a_wrong_option_submits_nothing(refused, api, port, given, said):
    assert said in refused(*arguments(port, **given))
    assert api.requests == []


def test_a_port_that_is_taken_is_one_line(refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "--receive: nothing can listen on" in refused(*arguments(taken.getsockname()[1]))


# -- the plan ------------------------------------------------------------------------------------


def dues(**given):
    options = {"count": 4, "first_us": 10 * SECOND_US, "within_us": 2 * SECOND_US, "seed": 1}
    return plan.spread(**{**options, **given})


def test_due_times_lie_where_the_pattern_says():
    assert dues(pattern="even") == (10_000_000, 10_500_000, 11_000_000, 11_500_000)
    assert dues(pattern="at-once") == (10_000_000,) * 4
    drawn = dues(pattern="random", count=1000)
    assert list(drawn) == sorted(drawn)
    assert 10 * SECOND_US <= drawn[0] <= drawn[-1] < 12 * SECOND_US
    assert drawn == dues(pattern="random", count=1000)
    assert drawn != dues(pattern="random", count=1000, seed=2)


@pytest.mark.parametrize("id_", ["load-1-000004", "load-2-000001", "load-1-x", "load-1-", "order"])
def test_an_id_of_another_load_is_not_counted(id_):
    assert plan.LoadPlan(run="load-1", due_us=(1, 2, 3), payload=None).number_of(id_) is None


def test_an_id_leads_back_to_its_number():
    made = plan.LoadPlan(run="load-1", due_us=(1, 2, 3), payload=None)
    assert [made.number_of(made.row(number).id) for number in range(3)] == [0, 1, 2]


# -- the receiver --------------------------------------------------------------------------------


async def heard(data, *, pieces=1):
    """What the receiver notes and answers for these bytes."""
    import asyncio

    noted, foreign = [], []
    async with receiver.listening(
        "127.0.0.1", 0, lambda member, _: noted.append(member), lambda: foreign.append(1)
    ) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at)
        size = -(-len(data) // pieces)
        for start in range(0, len(data), size):
            writer.write(data[start : start + size])
            await writer.drain()
            await asyncio.sleep(0.01)
        answered = await asyncio.wait_for(reader.read(4096), 5)
        writer.close()
    return noted, len(foreign), answered.count(b"204"), answered.count(b"400")


def request(body, head=b""):
    return b"POST / HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)


STANDARD = b'{"type": "schedule.fired", "data": {"schedule": {"name": "a"}}}'
BINARY = b'{"schedule": {"name": "b"}, "payload": 1}'


async def test_events_of_several_formats_on_one_connection():
    assert await heard(request(STANDARD) + request(BINARY)) == (["a", "b"], 0, 2, 0)


async def test_an_event_that_comes_in_pieces():
    assert await heard(request(STANDARD), pieces=7) == (["a"], 0, 1, 0)


@pytest.mark.parametrize("body", [b"", b"{}", b"no JSON", b'{"data": 3}', b"[]", b"\xff"])
async def test_a_body_that_is_no_event_is_answered_and_counted(body):
    assert await heard(request(body)) == ([], 1, 1, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"x" * 20_000,
    ],
    ids=["chunked", "too long", "no number", "no head"],
)
async def test_what_it_does_not_understand_is_refused(data):
    assert await heard(data) == ([], 0, 0, 1)


# -- figures and picture -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 50), (0.9, 90), (0.99, 99), (1.0, 100), (0.0, 1)]
)
def test_a_percentile_is_a_value_that_was_measured(share, value):
    assert lateness.percentile(range(1, 101), share) == value


def test_a_percentile_of_one_value_is_that_value():
    assert {lateness.percentile([7], share) for share in (0.0, 0.5, 0.99, 1.0)} == {7}


def report(due_us, first_us):
    arrivals = lateness.Arrivals(due_us=due_us)
    for number, arrived in enumerate(first_us):
        if arrived:
            arrivals.add(number, arrived)
    return lateness.LoadReport(
        set_name="shop/<reminders>", count=len(due_us), within_seconds=1.0, accepted=len(due_us),
        refused={}, submitted_seconds=0.5, accepted_late=0, arrived=arrivals.count,
        lost=len(due_us) - arrivals.count, doubled=0, foreign=0, late_us=arrivals.late_us(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("count", "step_us", "late_us"),
    [(1, 0, 3_000), (50, 400_000, 3_000), (5_000, 600, 9_000), (30, 0, 1), (20, 1_000, None)],
    ids=["one", "few", "many", "at once", "none arrived"],
)
def test_a_picture_is_well_formed_and_nothing_lies_outside(count, step_us, late_us):
    due_us = [1_000_000_000 + number * step_us for number in range(count)]
    first_us = [0 if late_us is None else due + late_us + n % 7 for n, due in enumerate(due_us)]
    root = ET.fromstring(drawing.picture(report(due_us, first_us), due_us, first_us))

    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for shape in root.iter():
        for name in ("x", "cx", "y", "cy"):
            if name in shape.attrib and not shape.attrib[name].endswith("%"):
                assert 0 <= float(shape.attrib[name]) <= (width if "x" in name else height)
    dots = [each for each in root.iter() if each.tag.endswith("circle")]
    assert len(dots) == (0 if late_us is None else count if count <= 1_000 else 60)
    assert "shop/<reminders>" in "".join(root.itertext())
