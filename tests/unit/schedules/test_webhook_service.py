"""``spec.webhook.service`` is judged by the program, whatever schema an object came through."""

from __future__ import annotations

import pytest

from duepoint.schedules import targetspec


def troubles(**service):
    told = []
    fields = targetspec.WebhookFields(service=targetspec.ServiceFields(**service))
    targetspec.webhook(fields, lambda path, message: told.append((path, message)))
    return told


@pytest.mark.parametrize(
    "path",
    [
        "hooks", "@evil.example/", ":80@evil.example/", "", "/a b", "/a#b", "/a\r\nHost: x", "/a\n",
        "/\u00e4", "/" + "x" * 2048,
    ],
    ids=ascii,
)  # fmt: skip
def test_what_is_no_path_is_refused(path):
    ((field, message),) = troubles(name="billing", path=path)
    assert field == "spec.webhook.service.path"
    assert "write /hooks/run" in message


@pytest.mark.parametrize("path", ["/", "/hooks/run?x=1&y=%20", "//x", None])
def test_a_path_with_its_query_is_accepted(path):
    assert troubles(name="billing", path=path) == []


@pytest.mark.parametrize("name", ["", "billing.shop", "a/b", "../x", "Billing", "billing\n"])
def test_what_is_no_name_of_a_service_is_refused(name):
    ((field, _),) = troubles(name=name)
    assert field == "spec.webhook.service.name"


@pytest.mark.parametrize("port", [0, 65536, -1, "80", "a_b", "", "x" * 16, "http\n"])
def test_what_is_no_port_is_refused(port):
    ((field, _),) = troubles(name="billing", port=port)
    assert field == "spec.webhook.service.port"


@pytest.mark.parametrize("port", [1, 65535, "http", "8080-tcp"])
def test_numbers_and_names_of_ports_are_accepted(port):
    assert troubles(name="billing", port=port) == []


def test_another_scheme_than_http_is_refused():
    ((field, message),) = troubles(name="billing", scheme="gopher")
    assert field == "spec.webhook.service.scheme"
    assert "http or https" in message


@pytest.mark.parametrize("url", ["https://a/\n", "https://a\n", "https://a:80\n"])
def test_a_line_end_behind_a_url_is_refused(url):
    told = []
    fields = targetspec.WebhookFields(url=url)
    targetspec.webhook(fields, lambda path, message: told.append(path))
    assert told == ["spec.webhook.url"]
