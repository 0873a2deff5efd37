"""`duepoint webhook test` and `verify`, as somebody without a cluster uses them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading

import pytest
import standardwebhooks

from duepoint.targets.webhook import signing
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


def test_the_text_of_a_dry_run_is_a_request_that_verifies(duepoint, tmp_path):
    shown = duepoint("webhook", "test", "-f", "-", "--dry-run", *GIVEN, given=SIGNED)
    (tmp_path / "request.txt").write_text(shown.out)
    verified = duepoint(
        "webhook", "verify", "--secret", SECRET, "--request", str(tmp_path / "request.txt")
    )
    assert (verified.code, verified.out[:6]) == (0, "valid:"), verified.err
    assert shown.err == "duepoint: not sent\n"


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


# -- verify ---------------------------------------------------------------------------------------

AT = "2026-03-01T12:00:00Z"
STAMP = "1772366400"
BODY = b'{"a":1,"b":"x"}'


def raw(body=BODY, sent=BODY, secret=SECRET, ending="\r\n", **changes) -> bytes:
    """A captured request, signed over ``sent``."""
    headers = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": STAMP,
        "Webhook-Signature": signing.header([signing.signer(secret)], "msg_1", STAMP, sent),
    } | changes
    lines = ["POST /hook HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items() if v), "", ""]
    return ending.join(lines).encode() + body


def verify(duepoint, given, *arguments):
    return duepoint("webhook", "verify", "--secret", SECRET, *arguments, given=given)


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_a_captured_request_is_valid(duepoint, ending):
    answer = verify(duepoint, raw(ending=ending))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"valid: msg_1, sent {AT}, signed with secret 1\n"


def test_a_public_key_verifies(duepoint, tmp_path):
    whsk = "whsk_" + base64.b64encode(bytes(range(32))).decode()
    public = signing.signer(whsk).public.public_bytes_raw()
    (tmp_path / "key").write_text("whpk_" + base64.b64encode(public).decode() + "\n")
    arguments = ("webhook", "verify", "--secret-file", str(tmp_path / "key"))
    assert duepoint(*arguments, given=raw(secret=whsk)).code == 0
    assert duepoint(*arguments, given=raw()).code == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (raw(secret=OTHER), "another secret"),
        (raw(body=BODY + b"\n"), "line break"),
        (raw(**{"Webhook-Signature": ""}), "webhook-signature is missing"),
        (raw(**{"Webhook-Id": ""}), "webhook-id is missing"),
        (raw(**{"Webhook-Timestamp": "yesterday"}), "not a time"),
        (raw(**{"Webhook-Timestamp": "9" * 40}), "not a time"),
        (raw(**{"Webhook-Signature": "v9,abc garbage"}), "no entry"),
        (b"", "webhook-id is missing"),
        (b"\xff\xfe\x00", "webhook-id is missing"),
    ],
)
def test_why_a_request_is_not_valid(duepoint, given, words):
    answer = verify(duepoint, given)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("duepoint: not valid: ")
    assert words in answer.err
    assert answer.err.count("\n") == 1


def test_of_noise_little_is_repeated_and_nothing_that_moves_a_terminal(duepoint):
    noise = b"\n".join(b"\x9b31m\x1b]0;" + b"\xff\x00" * 1000 + b": x" for _ in range(50))
    answer = verify(duepoint, noise)
    assert answer.code == 1
    assert len(answer.err) < 4000
    assert answer.err.replace("\n", "").isprintable()


def test_a_dry_run_sends_nothing_and_verifies(duepoint):
    shown = duepoint("webhook", "test", "-", "--dry-run", "-o", "json", *GIVEN, given=SIGNED)
    (row,) = shown.rows
    assert row["accepted"] is None
    standardwebhooks.Webhook(SECRET).verify(row["body"], row["headers"])
    plain = duepoint("webhook", "test", "-", "--dry-run", *GIVEN, given=SIGNED)
    verified = duepoint("webhook", "verify", "--secret", SECRET, given=plain.out)
    assert (verified.code, verified.out[:6]) == (0, "valid:")
