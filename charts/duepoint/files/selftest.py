"""`helm test`: creates a Schedule, waits until it is armed and has fired, and deletes it.

Runs in Duepoint's own image with the standard library only. The account of this Pod may create,
read and delete Schedules in one namespace. Exit code 0 and one line on success; otherwise one line
that names the step that failed, with the Schedule's conditions.

Environment: TEST_NAMESPACE, TEST_NAME, TEST_FIRES ("true" where streams in Duepoint's own Redis are
allowed), TEST_SECONDS (the longest wait), and for tests outside a Pod TEST_SERVER, TEST_TOKEN_FILE
and TEST_CA_FILE.
"""

import datetime as dt
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/"
POLL_SECONDS = 0.5


class Failed(Exception):
    """The installation does not do what it should; the message says what."""


def server() -> str:
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    host = f"[{host}]" if ":" in host else host
    in_pod = f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
    return os.environ.get("TEST_SERVER", in_pod)


def ask(method: str, path: str, body: object = None) -> dict:
    """Send a request; return the object in the answer, or {} if it does not exist."""
    token = Path(os.environ.get("TEST_TOKEN_FILE", ACCOUNT + "token")).read_text().strip()
    request = urllib.request.Request(
        server() + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    trust = ssl.create_default_context(cafile=os.environ.get("TEST_CA_FILE", ACCOUNT + "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code == 404 and method != "POST":
            return {}
        told = json.loads(error.read() or b"{}").get("message", error.reason)
        said = f"the API server refused {method} of a Schedule ({error.code}): {told}"
        raise Failed(said) from error


def troubles(schedule: dict) -> str:
    """Return the conditions in one line."""
    conditions = schedule.get("status", {}).get("conditions", [])
    said = [
        f"{one['type']}={one['status']} {one.get('reason', '')}: {one.get('message', '')}"
        for one in conditions
    ]
    return "; ".join(said) or "it has no status: no operator has processed it"


def is_ready(schedule: dict) -> bool:
    conditions = schedule.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def has_fired(schedule: dict) -> bool:
    return schedule.get("status", {}).get("runs", {}).get("succeeded", 0) == 1


def wait_until(holds: Callable[[dict], bool], path: str, what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        schedule = ask("GET", path)
        if holds(schedule):
            return
        if time.monotonic() > deadline:
            raise Failed(f"after {seconds:.0f} s the Schedule {what}: {troubles(schedule)}")
        time.sleep(POLL_SECONDS)


def run() -> str:
    namespace, name = os.environ["TEST_NAMESPACE"], os.environ["TEST_NAME"]
    fires = os.environ["TEST_FIRES"] == "true"
    seconds = float(os.environ.get("TEST_SECONDS", "60"))
    collection = f"/apis/duepoint.dev/v1alpha1/namespaces/{namespace}/schedules"
    slot = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5)
    spec = {
        "schedule": f"@at {slot:%Y-%m-%dT%H:%M:%SZ}",
        "stream": {"name": name, "maxLength": 1},
    }
    if not fires:  # send nothing anywhere: a slot that is far away
        spec = {"schedule": "@yearly", "webhook": {"url": "https://duepoint.invalid/"}}
    ask("DELETE", f"{collection}/{name}")
    is_gone = "of an earlier test is still there"
    wait_until(lambda schedule: not schedule, f"{collection}/{name}", is_gone, 10)
    ask(
        "POST",
        collection,
        {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": "Schedule",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        },
    )
    try:
        wait_until(is_ready, f"{collection}/{name}", "is not Ready", seconds)
        if not fires:
            return (
                "a Schedule is accepted and armed; streams in Duepoint's own Redis are off, "
                "so none was fired"
            )
        wait_until(has_fired, f"{collection}/{name}", "has not fired", seconds)
    finally:
        ask("DELETE", f"{collection}/{name}")
    return "a Schedule is accepted, armed, and fired once"


if __name__ == "__main__":
    try:
        sys.stdout.write(run() + "\n")
    except Failed as failed:
        sys.exit(str(failed))
    except (OSError, ValueError) as error:
        sys.exit(f"the API server at {server()} gave no valid answer: {error}")
