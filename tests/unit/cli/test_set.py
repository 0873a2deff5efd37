"""``duepoint set``: members looked at and changed through a real HTTP server."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.fakes import memoryapi

pytestmark = pytest.mark.usefixtures("environment")


# -- who asks whom -------------------------------------------------------------------------------


def test_namespace_and_token_are_those_of_the_kubeconfig(duepoint, api):
    assert duepoint("set", "get", "reminders").code == 0
    assert api.requests[0][1] == "/v1/namespaces/shop/schedulesets/reminders"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--server", ""], "--server: is missing"),
        (["--server", "api.example.com"], "--server:"),
        (["--token-file", "/nowhere/token"], "--token-file: /nowhere/token"),
        (["--ca-file", "/nowhere/ca"], "--ca-file: /nowhere/ca"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_is_wrong_on_the_way_is_one_line(refused, arguments, said):
    assert said in refused("set", "get", "reminders", *arguments)


def test_a_token_that_the_api_does_not_know_is_said_with_the_way_to_one(refused, monkeypatch):
    monkeypatch.setenv("DUEPOINT_API_TOKEN", "bad")
    assert "kubectl create token" in refused("set", "get", "reminders")


def test_a_set_that_is_not_there_is_said_with_the_namespace_that_was_looked_in(refused):
    for command in (("set", "list"), ("set", "get"), ("load",)):
        id_ = ("order-17",) if command == ("set", "get") else ()
        said = refused(*command, "nope", *id_)
        assert "SET: nope in namespace shop: " in said
        assert "-n names another" in said
    assert "in namespace other: " in refused("set", "list", "nope", "-n", "other")


@pytest.mark.parametrize(("text", "instead"), [("500ms", "1s"), ("1500ms", "2s")])
def test_a_deadline_that_the_api_cannot_store_is_refused_with_one_that_it_can(
    refused, api, text, instead
):
    said = refused("set", "put", "reminders", "a", "--delay", "1h", "--starting-deadline", text)
    assert (
        f'--starting-deadline: "{text}" is not a whole number of seconds; write {instead}' in said
    )


ELSEWHERE = "https://duepoint.example.invalid"


def test_the_kubeconfigs_token_goes_to_no_other_machine(refused, monkeypatch):
    said = refused("set", "get", "reminders", "--server", ELSEWHERE)
    assert f"does not go to another machine, {ELSEWHERE}" in said
    monkeypatch.setenv("DUEPOINT_API_URL", ELSEWHERE)
    for command in (("set", "get"), ("load",)):
        assert "does not go to another machine" in refused(*command, "reminders")


def test_a_token_that_was_given_for_a_server_goes_there(refused, monkeypatch, tmp_path):
    monkeypatch.setattr("duepoint.client.transport.is_passing", lambda _: False)
    token = tmp_path / "token"
    token.write_text("good")
    there = ("set", "get", "reminders", "--server", ELSEWHERE)
    assert "no answer" in refused(*there, "--token-file", str(token))
    monkeypatch.setenv("DUEPOINT_API_TOKEN", "good")
    assert "no answer" in refused(*there)


@pytest.mark.parametrize("token", ["", "good"])
def test_no_token_goes_out_unencrypted(refused, monkeypatch, token):
    monkeypatch.setenv("DUEPOINT_API_TOKEN", token)
    for server in ("http://duepoint.example.invalid", "http://127.0.0.1.example.invalid:80"):
        said = refused("set", "get", "reminders", "--server", server)
        assert f"--server: {server} is plain HTTP" in said


# -- looking -------------------------------------------------------------------------------------


#: Not drawn, or drawn elsewhere: zero width, soft hyphen, directions, tags, a selector, a filler.
DECEIVING = [
    *("\u200b", "\u00ad", "\u202e", "\u2066", "\u061c", "\U000e0041", "\ufe0f", "\u3164"),
    *("\ufeff", "\u2028", "\x9b"),
]


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml"])
@pytest.mark.parametrize("one", [True, False], ids=["get", "list"])
def test_no_text_of_a_member_looks_like_another(duepoint, api, form, one):
    texts = [f"to{each}day" for each in DECEIVING]
    api.store("order-17", {"schedule": "0 9 * * *", "payload": {"n": "".join(texts) + "à"}})

    words = ("get", "reminders", "order-17") if one else ("list", "reminders")
    out = duepoint("set", *words, "-o", form).out
    assert "day" in out
    assert not [each for each in DECEIVING if each in out]
    if form == "json":
        assert json.loads(out)["payload"] == {"n": "".join(texts) + "à"}
    if form == "yaml":
        assert yaml.safe_load(out)["payload"] == {"n": "".join(texts) + "à"}


# -- changing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a"], "write exactly one of them; none of them is there"),
        (["a", "--at", "now", "--delay", "1h"], "there is --at and --delay"),
        (["--schedule", "@daily"], "ID: is missing"),
        (["a", "--delay", "1 day"], "--delay"),
        (["a", "--delay", "1h", "--payload", "{"], "--payload: is not JSON"),
        (["a", "--at", "monday"], "--at"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_wrong_put_sends_nothing(refused, api, arguments, said):
    api.refused = {"a": [(400, "X")]}
    if "1 day" in arguments:
        api.faults.append(_invalid_delay)
    assert said in refused("set", "put", "reminders", *arguments)
    assert api.members == {}


async def _invalid_delay(_):
    return memoryapi.problem(400, "InvalidDuration", "--delay is the API's to judge", "delay")


def test_delete_by_id_by_prefix_and_all(duepoint, api):
    for name in ("a-1", "a-2", "b-1", "c"):
        api.store(name, {"delay": "1h"})

    assert duepoint("set", "delete", "reminders", "a-1", "zz").out == (
        "1 deleted, 1 were not there\n"
    )
    assert duepoint("set", "delete", "reminders", "--prefix", "b", "--yes").out == "1 deleted\n"
    assert list(api.members) == ["a-2", "c"]
    assert duepoint("set", "delete", "reminders", "--all", "-y", "-o", "json").rows == [
        {"removed": 2, "absent": 0, "refused": 0}
    ]
    assert duepoint("set", "delete", "reminders", "zz").code == 1


@pytest.mark.parametrize(
    "arguments", [[], ["a", "--all"], ["--prefix", "a", "--all"], ["--prefix", "a"], ["--all"]]
)
def test_nothing_is_deleted_because_an_option_was_forgotten(refused, api, arguments):
    api.store("a", {"delay": "1h"})
    refused("set", "delete", "reminders", *arguments)

    assert list(api.members) == ["a"]


def test_without_a_kubeconfig_a_token_is_enough(duepoint, environment, monkeypatch):
    environment.unlink()
    monkeypatch.setenv("DUEPOINT_API_TOKEN", "good")
    assert duepoint("set", "get", "reminders", "-n", "shop").code == 0
