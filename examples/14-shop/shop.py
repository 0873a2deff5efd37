# ruff: noqa: INP001 - a script of its own
"""A shop that reminds customers of orders they have not paid.

    pip install 'duepoint[client]'
    export DUEPOINT_API_URL=https://localhost:8443 DUEPOINT_API_TOKEN=$(kubectl create token editor)
    python shop.py serve --port 8089
    python shop.py order 17 --customer ada@example.com --remind-after 30s
    python shop.py pay 17

An order is a row of the shop's own database, and its reminder is a member of the set, whose id is
made of the order's number: the same order never has two reminders, and its payment deletes the one
there is. A reminder that fires while the payment is on its way finds the order paid and mails
nothing: the database decides, never the event.
"""

from __future__ import annotations

import argparse
import datetime as dt
import http.server
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from duepoint.client import Client, MemberRow, MemberSpec, SetClient

_TABLES = """
CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, customer TEXT, state TEXT);
CREATE TABLE IF NOT EXISTS outbox (event TEXT PRIMARY KEY, customer TEXT, text TEXT);
"""


class Shop:
    """Orders, their reminders, and the mails that are to be sent."""

    def __init__(self, database: str, reminders: SetClient | None) -> None:
        self._database = sqlite3.connect(database)
        self._database.executescript(_TABLES)
        self._reminders = reminders

    def order(self, number: int, customer: str, remind_after: str) -> None:
        """Take an order; taking it again after a crash changes nothing."""
        with self._database as transaction:
            transaction.execute(
                "INSERT OR IGNORE INTO orders VALUES (?, ?, 'open')", (number, customer)
            )
        assert self._reminders is not None  # noqa: S101 - serve takes no orders
        self._reminders.put(reminder_id(number), reminder(number, remind_after))

    def pay(self, number: int) -> bool:
        """Note the payment, then delete the reminder; whether there was one left."""
        with self._database as transaction:
            transaction.execute("UPDATE orders SET state = 'paid' WHERE number = ?", (number,))
        assert self._reminders is not None  # noqa: S101 - serve takes no payments
        return self._reminders.delete(reminder_id(number))

    def remind_all(self, at: dt.datetime) -> int:
        """A reminder for every open order, as after a restore of the database; how many."""
        assert self._reminders is not None  # noqa: S101 - serve writes none
        answers = self._reminders.upsert(self._rows(at))
        return sum(1 for answer in answers if not answer.is_refused)

    def _rows(self, at: dt.datetime) -> Iterator[MemberRow]:
        """Rows name the instant: the client may send them again, and a delay would begin anew."""
        found = self._database.execute("SELECT number FROM orders WHERE state = 'open'")
        for (number,) in found:
            yield MemberRow(id=reminder_id(number), at=at, payload={"order": number})

    def receive(self, event: dict[str, Any]) -> bool:
        """Write the mail of a reminder once; whether there is a new one.

        The event's id, the order's state and the mail are one transaction, so an event that comes
        again, as it does where our answer was lost, writes no second mail.
        """
        number = event["payload"]["order"]
        with self._database as transaction:
            found = transaction.execute(
                "SELECT customer FROM orders WHERE number = ? AND state = 'open'", (number,)
            ).fetchone()
            if found is None:
                return False
            text = f"You have not paid order {number} yet."
            written = transaction.execute(
                "INSERT OR IGNORE INTO outbox VALUES (?, ?, ?)", (event["id"], found[0], text)
            )
            return written.rowcount == 1

    def mails(self) -> list[tuple[str, str]]:
        """What a mailer would send."""
        return list(self._database.execute("SELECT customer, text FROM outbox ORDER BY rowid"))


def reminder_id(number: int) -> str:
    """The id of an order's reminder."""
    return f"order-{number}"


def reminder(number: int, after: str) -> MemberSpec:
    """A one-off so long from now, with what the shop needs to find the order."""
    return MemberSpec(delay=after, payload={"order": number})


# -- the receiver --------------------------------------------------------------------------------


def server(shop: Shop, port: int) -> http.server.HTTPServer:
    """Takes the events of the set's webhook; 204 when the mail is in the database."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            try:
                written = shop.receive(json.loads(body)["data"])
            except (ValueError, KeyError, TypeError):
                self.send_error(400)  # Duepoint gives up on it: no later attempt would be better
                return
            if written:
                print("mail", *shop.mails()[-1], flush=True)  # noqa: T201 - what it is for
            self.send_response(204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    return http.server.HTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", default="shop.db")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--set", default="reminders", dest="set_name")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve").add_argument("--port", type=int, default=8089)
    order = commands.add_parser("order")
    order.add_argument("number", type=int)
    order.add_argument("--customer", required=True)
    order.add_argument("--remind-after", default="24h")
    commands.add_parser("pay").add_argument("number", type=int)
    commands.add_parser("remind-all").add_argument("--hours", type=float, default=24.0)
    asked = parser.parse_args()
    if asked.command == "serve":
        server(Shop(asked.database, None), asked.port).serve_forever()
        return
    with Client.from_environment() as client:
        shop = Shop(asked.database, client.schedule_set(asked.namespace, asked.set_name))
        if asked.command == "order":
            shop.order(asked.number, asked.customer, asked.remind_after)
        elif asked.command == "pay":
            shop.pay(asked.number)
        else:
            at = dt.datetime.now(dt.UTC) + dt.timedelta(hours=asked.hours)
            print(shop.remind_all(at))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
