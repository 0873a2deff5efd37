"""A URL that is refused is named by its host alone: the rest may be a credential."""

from __future__ import annotations

import pytest

from duepoint.runs import outcome
from duepoint.schedules import targetspec
from tests.support import firings, webhooktargets

REFUSED = [
    ("https://hooks.example.com/canary#canary", "https://hooks.example.com/…"),
    ("https://canary:canary@hooks.example.com/", "https://hooks.example.com/…"),
    ("ftp://hooks.example.com/canary", "ftp://hooks.example.com/…"),
    ("https://hooks.example.com canary", "https://hooks.example.com/…"),
    ("https://hooks.example.com\\canary", "https://hooks.example.com/…"),
    ("https://hooks.example.com?canary#", "https://hooks.example.com/…"),
    ("hooks.example.com/canary", "hooks.example.com/…"),
    ("https://[:::]/canary", "https://[:::]/…"),
    ("https://[1.2.3.4]:443/canary", "https://[1.2.3.4]:443/…"),
    ("https://hooks.example.com:99999/canary", "https://hooks.example.com:99999/…"),
]


@pytest.mark.parametrize(("url", "named"), REFUSED)
def test_a_url_that_is_refused_is_told_without_its_path_and_login(url, named):
    told = []
    fields = targetspec.WebhookFields(url=url)
    targetspec.webhook(fields, lambda path, message: told.append((path, message)))
    ((path, message),) = told
    assert path == "spec.webhook.url"
    assert message.startswith(f'"{named}" ')
    assert "canary" not in message


@pytest.mark.parametrize(
    "url", ["https://canary:canary@hooks.example.com/canary", "ftp://hooks.example.com/canary"]
)
async def test_a_worker_that_cannot_call_a_url_names_its_host_alone(url):
    async with webhooktargets.a_target() as (target, _):
        given = await target.fire(firings.a_firing(firings.a_webhook(url=url)))
    assert isinstance(given, outcome.Rejected)
    assert "hooks.example.com" in given.message
    assert "canary" not in given.message


@pytest.mark.parametrize("url", ["https://[2001:db8::1]/a", "https://[::ffff:192.0.2.1]:8443?a=b"])
def test_an_address_in_brackets_is_a_host(url):
    assert targetspec.url_trouble(url) == ""
