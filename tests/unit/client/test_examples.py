"""The program of examples/14 against a real HTTP server."""

from __future__ import annotations

import datetime as dt
import http.client
import importlib.util
import json
import threading
from pathlib import Path

import pytest

from duepoint.client import Client

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def loaded(path):
    found = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shops():
    return loaded(EXAMPLES / "14-shop" / "shop.py")


@pytest.fixture
def shop(shops, api, tmp_path):
    with Client(api.url, token="good") as client:
        yield shops.Shop(str(tmp_path / "shop.db"), client.schedule_set("shop", "reminders"))


def event(number, id_="e1"):
    return {"id": id_, "payload": {"order": number}}


def test_an_order_has_one_reminder_and_its_payment_deletes_it(shop, api):
    shop.order(17, "ada", "24h")
    shop.order(17, "ada", "24h")

    assert list(api.members) == ["order-17"]
    assert api.members["order-17"]["payload"] == {"order": 17}
    assert shop.pay(17) is True
    assert api.members == {}
    assert shop.pay(17) is False


def test_a_reminder_writes_one_mail_however_often_it_comes(shop):
    shop.order(17, "ada", "24h")

    assert [shop.receive(event(17)) for _ in range(3)] == [True, False, False]
    assert shop.mails() == [("ada", "You have not paid order 17 yet.")]


def test_a_reminder_that_crossed_the_payment_writes_none(shop):
    shop.order(17, "ada", "24h")
    shop.pay(17)

    assert shop.receive(event(17)) is False
    assert shop.mails() == []


def test_after_a_restore_every_open_order_has_its_reminder(shop, api):
    for number in (17, 18, 19):
        shop.order(number, "ada", "24h")
    shop.pay(18)
    api.members.clear()

    assert shop.remind_all(dt.datetime(2090, 12, 24, 18, tzinfo=dt.UTC)) == 2
    assert sorted(api.members) == ["order-17", "order-19"]


@pytest.mark.parametrize(
    ("body", "status"),
    [(json.dumps({"data": event(17)}).encode(), 204), (b"no JSON", 400), (b"[]", 400)],
    ids=["an event", "no JSON", "no event"],
)
def test_the_receiver_answers_when_the_mail_is_stored(shops, shop, tmp_path, body, status):
    shop.order(17, "ada", "24h")
    started, port = threading.Event(), []

    def serve():
        receiver = shops.server(shops.Shop(str(tmp_path / "shop.db"), None), 0)
        port.append(receiver.server_port)
        started.set()
        receiver.handle_request()
        receiver.server_close()

    thread = threading.Thread(target=serve)
    thread.start()
    started.wait(5)
    connection = http.client.HTTPConnection("127.0.0.1", port[0], timeout=5)
    connection.request("POST", "/reminders", body=body)

    assert connection.getresponse().status == status
    connection.close()
    thread.join(5)
    assert len(shop.mails()) == (status == 204)
