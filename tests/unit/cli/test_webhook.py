"""`duepoint webhook test`, as somebody without a cluster uses them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading

import pytest
import standardwebhooks

from tests.support import receiver, vaults

SECRET = vaults.WHSEC
OTHER = "whsec_" + base64.b64encode(b"canary-canary-canary-canary").decode()


def manifest(**webhook) -> str:
    document = {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": "nightly", "namespace": "shop"},
        "spec": {
            "schedule": "0 2 * * *",
            "payload": {"n": "ü"},
            "webhook": {"url": "https://hooks.example.com/x", **webhook},
        },
    }
    return json.dumps(document)


SIGNED = manifest(signing={"secretKeyRefs": [{"name": "hook", "key": "a"}]})
GIVEN = ("--secret", f"hook/a={SECRET}")


@contextlib.contextmanager
def listening(answer=None):
    """A receiver on a loop of its own; the command has another one."""
    loop = asyncio.new_event_loop()
    started, stop = threading.Event(), asyncio.Event()
    found = []

    async def serve():
        async with receiver.listening(answer) as hears:
            found.append(hears)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(60)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


# -- test -----------------------------------------------------------------------------------------


def test_a_sample_is_sent_signed_and_shown(duepoint):
    with listening() as hears:
        url = f"http://127.0.0.1:{hears.port}/try"
        answer = duepoint("webhook", "test", "-f", "-", "--url", url, *GIVEN, given=SIGNED)
    assert answer.code == 0, answer.err
    (request,) = hears.requests
    assert request.target == "/try"
    found = standardwebhooks.Webhook(SECRET).verify(request.body, dict(request.headers))
    assert found["data"]["payload"] == {"n": "ü"}
    assert found["data"]["trigger"] == "Manual"
    assert request.header("webhook-signature") in answer.out
    assert "accepted: answered 204" in answer.out


def test_an_address_that_is_denied_is_a_row_and_no_line_of_a_log(duepoint):
    url = "http://169.254.169.254/"
    words = ("webhook", "test", "-f", "-", "--url", url, *GIVEN, "-o", "json")
    answer = duepoint(*words, given=SIGNED)
    (row,) = answer.rows
    assert "its address is not allowed" in row["message"]
    assert answer.code == 1


def test_a_receiver_that_refuses_is_exit_code_1(duepoint):
    with listening(receiver.status(400, b"no thanks")) as hears:
        url = f"http://127.0.0.1:{hears.port}/"
        answer = duepoint("webhook", "test", "-f", "-", "--url", url, *GIVEN, given=SIGNED)
    assert answer.code == 1
    assert "answered 400: no thanks" in answer.err


def test_a_receiver_that_says_nothing_is_waited_for_as_long_as_asked(duepoint):
    with listening(receiver.hang) as hears:
        url = f"http://127.0.0.1:{hears.port}/"
        answer = duepoint(
            "webhook", "test", "-", "--url", url, "--timeout", "100ms", *GIVEN, given=SIGNED
        )
    assert answer.code == 2
    assert "--timeout: it was not done within 100ms; write a longer one" in answer.err


def test_a_dry_run_sends_nothing_and_verifies(duepoint):
    shown = duepoint("webhook", "test", "-", "--dry-run", "-o", "json", *GIVEN, given=SIGNED)
    (row,) = shown.rows
    assert row["accepted"] is None
    standardwebhooks.Webhook(SECRET).verify(row["body"], row["headers"])


def test_secrets_come_from_files_and_are_not_shown(duepoint, tmp_path):
    (tmp_path / "token").write_text("canary-token\n")
    (tmp_path / "sig").write_text(OTHER)
    text = manifest(
        signing={"secretKeyRefs": [{"name": "hook", "key": "a"}]},
        auth={"bearer": {"secretKeyRef": {"name": "api", "key": "t"}}},
    )
    answer = duepoint(
        "webhook", "test", "-f", "-", "--dry-run",
        "--secret-file", f"api/t={tmp_path / 'token'}",
        "--secret-file", f"hook/a={tmp_path / 'sig'}",
        given=text,
    )  # fmt: skip
    assert answer.code == 0
    assert "authorization: Bearer [redacted]" in answer.out
    assert "canary" not in answer.out + answer.err
    assert OTHER.partition("_")[2] not in answer.out


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (SIGNED, (), ["Secret shop/hook is not known here", "--secret-file"]),
        (SIGNED, ("--secret", f"hook/b={SECRET}"), ["has no key a"]),
        (SIGNED, ("--secret", "hook/a=canary"), ["secretKeyRefs[0]", "whsec_"]),
        (SIGNED, ("--secret", "canary"), ["NAME/KEY=..."]),
        (SIGNED, ("--secret-file", "hook/a=/no/such"), ["/no/such"]),
        (SIGNED, (*GIVEN, "--url", "ftp://x"), ["--url", "http://"]),
        (SIGNED, (*GIVEN, "--name", "other"), ["other"]),
        (SIGNED, (*GIVEN, "--kubeconfig", "/no/such"), ["/no/such"]),
        (manifest(url=None, service={"name": "billing"}), (), ["billing", "--url"]),
        (manifest(signing={"secretKeyRefs": []}), (), ["secretKeyRefs"]),
        ("{", (), ["standard input"]),
    ],
)
def test_what_is_missing_or_wrong_is_one_line_and_exit_code_2(refused, text, arguments, words):
    line = refused("webhook", "test", "-f", "-", *arguments, given=text)
    for word in words:
        assert word in line
    assert "canary" not in line


def test_of_several_webhooks_one_has_to_be_named(refused, duepoint):
    documents = [json.loads(manifest()), json.loads(manifest())]
    documents[1]["metadata"]["name"] = "weekly"
    text = "---\n".join(json.dumps(one) + "\n" for one in documents)
    line = refused("webhook", "test", "-f", "-", "--dry-run", given=text)
    assert "--name" in line
    assert "nightly, weekly" in line
    answer = duepoint(
        "webhook", "test", "-f", "-", "--dry-run", "--name", "weekly", "-o", "json", given=text
    )
    assert json.loads(answer.rows[0]["body"])["data"]["schedule"]["name"] == "weekly"
