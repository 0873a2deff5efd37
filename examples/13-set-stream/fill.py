# ruff: noqa: INP001 - a script of its own
"""Fill the set: devices that are checked every few seconds, each with an interval of its own.

    pip install 'duepoint[client]'
    export DUEPOINT_API_URL=https://localhost:8443 DUEPOINT_API_TOKEN=$(kubectl create token editor)
    python fill.py --devices 100

The same command again changes nothing. ``--remove`` deletes the members.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterator

from duepoint.client import Client, MemberRow


def members(devices: int) -> Iterator[MemberRow]:
    """A member a device; the id is the device's own name, so each device has one."""
    for number in range(devices):
        seconds = 5 + number % 6
        yield MemberRow(
            id=f"device-{number:04d}",
            schedule=f"@every {seconds}s",
            payload={"device": number, "every": seconds},
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--set", default="checks", dest="set_name")
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--remove", action="store_true")
    asked = parser.parse_args()
    outcomes: collections.Counter[str] = collections.Counter()
    with Client.from_environment() as client:
        checks = client.schedule_set(asked.namespace, asked.set_name)
        rows = members(asked.devices)
        answers = (
            checks.delete_many(row.id for row in rows) if asked.remove else checks.upsert(rows)
        )
        for answer in answers:
            answer.raise_if_refused()
            outcomes[answer.outcome] += 1
    print(dict(outcomes))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
