"""Where the owner of a Secret lets it go."""

from __future__ import annotations

import pytest

from duepoint.targets.secretaccess import references


@pytest.mark.parametrize(
    ("said", "host", "port", "may"),
    [
        ("*", "hooks.example", 443, True),
        ("hooks.example", "hooks.example", 443, True),
        ("hooks.example", "HOOKS.example.", 443, True),
        ("Hooks.Example.", "hooks.example", 443, True),
        ("hooks.example", "hooks.example.evil", 443, False),
        ("hooks.example", "evil.hooks.example", 443, False),
        ("hooks.example:8443", "hooks.example", 8443, True),
        ("hooks.example:8443", "hooks.example", 443, False),
        ("*.example", "a.b.example", 443, True),
        ("*.example", "example", 443, False),
        ("*.example", "evilexample", 443, False),
        ("a, b\tc\nd", "d", 443, True),
        ("192.0.2.1", "192.0.2.1", 80, True),
        ("[2001:db8::1]", "2001:db8::1", 80, True),
        ("[2001:db8::1]:443", "2001:db8::1", 80, False),
        ("", "hooks.example", 443, False),
        (" , ", "hooks.example", 443, False),
        ("**", "hooks.example", 443, False),
        ("*:443", "hooks.example", 443, False),
        ("https://hooks.example/", "hooks.example", 443, False),
        ("hooks.example", "", 443, False),
        ("billing.shop.svc:443", "billing.shop.svc", None, False),
        ("billing.shop.svc", "billing.shop.svc", None, True),
    ],
)
def test_an_entry_names_a_receiver(said, host, port, may):
    to = references.Receiver(host, port)
    assert references.may_send({"duepoint.dev/send-to": said}, to) is may


def test_without_the_annotation_a_secret_goes_nowhere():
    assert not references.may_send({}, references.Receiver("a", 1))


@pytest.mark.parametrize(
    ("said", "may"),
    [("billing", True), ("a,billing", True), ("Billing", False), ("*", False), ("bill", False)],
)
def test_an_audience_is_listed_letter_for_letter(said, may):
    assert references.may_have_token({"duepoint.dev/token-audiences": said}, "billing") is may
