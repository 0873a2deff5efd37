"""Which secrets are taken, and that none is ever repeated."""

from __future__ import annotations

import base64

import pytest

from duepoint.targets.webhook import signing


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


#: From the documents of Standard Webhooks' libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, AT, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_published_example_is_signed_as_published():
    assert signing.header([signing.key_of(SECRET)], ID, AT, BODY) == SIGNATURE


def test_blanks_and_a_missing_padding_are_forgiven():
    raw = bytes(25)
    one = signing.key_of(f" whsec_{b64(raw)}\n")
    other = signing.key_of("whsec_" + b64(raw).rstrip("="))
    assert one == other == raw


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("canary-plain-text", "does not begin with whsec_"),
        ("", "does not begin with whsec_"),
        ("whpk_" + b64(bytes(32)), "does not begin with whsec_"),
        ("whsec_canary!!", "not base64"),
        ("whsec_" + b64(b"canary" * 3), "18 bytes"),
        ("whsec_" + b64(b"canary" * 11), "66 bytes"),
    ],
)
def test_a_secret_of_another_form_is_refused_and_not_repeated(text, words):
    with pytest.raises(ValueError, match=words) as refused:
        signing.key_of(text)
    tail = text.partition("_")[2] or text
    assert not tail or tail not in str(refused.value)
    assert refused.value.__cause__ is None
