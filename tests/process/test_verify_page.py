"""The receivers' code on the page verifies what we sign, and refuses what was changed."""

from __future__ import annotations

import re
import time
from pathlib import Path

from duepoint.targets.webhook import signing

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "sign-and-verify-a-webhook.md"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + "QUJD" * 8
BODY = '{"text": "ünï"}'


def snippet(language: str) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]


def cases() -> list[tuple[bool, dict[str, str], str]]:
    """(is valid, headers, body)"""
    now = str(int(time.time()))
    signers = [signing.signer(OTHER), signing.signer(SECRET)]
    signature = signing.header(signers, "msg_1", now, BODY.encode())
    good = {"webhook-id": "msg_1", "webhook-timestamp": now, "webhook-signature": signature}
    old = str(int(now) - 3600)
    late = signing.header(signers, "msg_1", old, BODY.encode())
    return [
        (True, good, BODY),
        (False, good, BODY + " "),
        (False, good | {"webhook-id": "msg_2"}, BODY),
        (False, good | {"webhook-signature": "v1,AAAA v2 garbage"}, BODY),
        (False, good | {"webhook-signature": "v1,ünï"}, BODY),
        (False, good | {"webhook-signature": ""}, BODY),
        (False, good | {"webhook-timestamp": old, "webhook-signature": late}, BODY),
    ]


def test_python_verifies():
    space: dict[str, object] = {}
    exec(snippet("python"), space)
    found = [space["verify"](SECRET, headers, body.encode()) for _, headers, body in cases()]
    assert found == [valid for valid, *_ in cases()]
