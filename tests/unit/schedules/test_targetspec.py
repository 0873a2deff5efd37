"""Targets of a spec: which URLs and Services of a webhook are taken."""

from __future__ import annotations

import pytest

from duepoint import errors
from duepoint.targets import outcome
from tests.support import builders, firings, webhooktargets

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
    ((path, message),) = troubles(url=url)
    assert path == "spec.webhook.url"
    assert message.startswith(f'"{named}": ')
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


def troubles(**webhook):
    try:
        builders.a_spec(webhook=webhook)
    except errors.InvalidSpec as error:
        return [(each.path, each.message) for each in error.errors]
    return []


def troubles_of_service(**service):
    return troubles(service=service)


@pytest.mark.parametrize(
    "path",
    [
        "hooks", "@evil.example/", ":80@evil.example/", "", "/a b", "/a#b", "/a\r\nHost: x", "/a\n",
        "/\u00e4", "/" + "x" * 2048,
    ],
    ids=ascii,
)  # fmt: skip
def test_what_is_no_path_is_refused(path):
    ((field, message),) = troubles_of_service(name="billing", path=path)
    assert field == "spec.webhook.service.path"
    assert "write a path" in message or "characters" in message


@pytest.mark.parametrize("url", ["https://a/\n", "https://a\n", "https://a:80\n"])
def test_a_line_end_behind_a_url_is_refused(url):
    assert [path for path, _ in troubles(url=url)] == ["spec.webhook.url"]
