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
    assert signing.header([signing.signer(SECRET)], ID, AT, BODY) == SIGNATURE


def test_blanks_and_a_missing_padding_are_forgiven():
    raw = bytes(25)
    one = signing.signer(f" whsec_{b64(raw)}\n")
    other = signing.signer("whsec_" + b64(raw).rstrip("="))
    assert one.sign(b"x") == other.sign(b"x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("canary-plain-text", "does not begin with whsec_"),
        ("", "does not begin with whsec_"),
        ("whpk_" + b64(bytes(32)), "does not begin with whsec_"),
        ("whsec_canary!!", "not base64"),
        ("whsec_" + b64(b"canary" * 3), "18 bytes"),
        ("whsec_" + b64(b"canary" * 11), "66 bytes"),
        ("whsk_" + b64(b"canary" * 4), "24 bytes"),
        ("whsk_" + b64(b"c" * 64), "public key"),
    ],
)
def test_a_secret_of_another_form_is_refused_and_not_repeated(text, words):
    with pytest.raises(ValueError, match=words) as refused:
        signing.signer(text)
    tail = text.partition("_")[2] or text
    assert not tail or tail not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_public_key_verifies_and_does_not_sign():
    private = signing.signer("whsk_" + b64(bytes(range(32))))
    public = signing.verifier("whpk_" + b64(private.public.public_bytes_raw()))
    assert public.accepts(b"x", private.sign(b"x"))
    assert not public.accepts(b"y", private.sign(b"x"))
    with pytest.raises(ValueError, match="does not sign"):
        public.sign(b"x")


@pytest.mark.parametrize("text", [SECRET, "whsk_" + b64(b"canary-canary-canary-canary-1234")])
def test_a_signer_does_not_show_its_secret(text):
    assert text[6:] not in repr(signing.signer(text))
    assert "canary" not in repr(signing.signer(text))
