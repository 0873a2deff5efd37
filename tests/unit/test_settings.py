"""Settings: one line for whatever is wrong, and nothing that silently does nothing."""

from __future__ import annotations

import pytest

from duepoint import errors, settings


@pytest.fixture
def environ(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    return {"DUEPOINT_REDIS_URL": "redis://localhost:6379/0", "DUEPOINT_BLOB_KEY_FILE": str(key)}


def read(environ, kind=settings.WorkerSettings, **flags):
    return settings.read(kind, environ, flags)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("redis_url", "http://x", "redis://host"),
        ("redis_url", "redis://:secret@", "names no host"),
        ("redis_url", "redis://host:99999", "port"),
        ("shards", "48", "power of two"),
        ("shards", "0", "out of range"),
        ("shards", "many", "whole number"),
        ("lease_seconds", "0", "out of range"),
        ("lease_seconds", "nan", "out of range"),
        ("egress_allowed_cidrs", "10.0.0.0/8,300.1.1.1", "300.1.1.1"),
        ("egress_mode", "closed", "public-only"),
        ("log_level", "loud", "debug"),
        ("http_port", "70000", "0 to 65535"),
        ("watch_namespaces", "Team_A", "namespace"),
        ("blob_key_file", "missing-file", "missing-file"),
        ("identity", " ", "empty"),
    ],
)
def test_a_wrong_value_names_the_setting_and_what_to_write(environ, name, value, words):
    with pytest.raises(errors.InvalidSetting) as caught:
        read({**environ, settings.variable(name): value})
    message = str(caught.value)
    assert message.startswith(f"{settings.variable(name)}: ")
    assert words in message
    assert "\n" not in message


def test_a_password_is_never_repeated(environ):
    with pytest.raises(errors.InvalidSetting) as caught:
        read({**environ, "DUEPOINT_REDIS_URL": "redis://:hunter2@:0/"})
    assert "hunter2" not in str(caught.value)


def test_what_the_client_of_the_http_api_reads_is_no_mistake(environ):
    given = {
        "DUEPOINT_API_URL": "https://a.example", "DUEPOINT_API_TOKEN": "t",
        "DUEPOINT_API_TOKEN_FILE": "/t", "DUEPOINT_API_CA_FILE": "/ca",
        "DUEPOINT_API_SEND_TOKEN": "1",
    }  # fmt: skip

    assert read({**environ, **given})
    with pytest.raises(errors.InvalidSetting, match="DUEPOINT_API_TOKENS: is not a setting"):
        read({**environ, "DUEPOINT_API_TOKENS": "t"})


def test_a_misspelt_variable_is_refused(environ):
    with pytest.raises(errors.InvalidSetting, match="DUEPOINT_BATHC"):
        read({**environ, "DUEPOINT_BATHC": "7"})


def test_variables_that_the_kubelet_makes_for_services_are_left_alone(environ):
    linked = {
        "DUEPOINT_VALKEY_SERVICE_HOST": "10.0.0.1",
        "DUEPOINT_VALKEY_SERVICE_PORT": "6379",
        "DUEPOINT_VALKEY_SERVICE_PORT_REDIS": "6379",
        "DUEPOINT_VALKEY_PORT": "tcp://10.0.0.1:6379",
        "DUEPOINT_VALKEY_PORT_6379_TCP": "tcp://10.0.0.1:6379",
        "DUEPOINT_VALKEY_PORT_6379_TCP_ADDR": "10.0.0.1",
    }
    assert read({**environ, **linked})


def test_a_required_setting_says_how_to_give_it(environ):
    del environ["DUEPOINT_REDIS_URL"]
    with pytest.raises(errors.InvalidSetting, match="--redis-url"):
        read(environ)
