"""What a program gets that imports the client."""

from __future__ import annotations

import pytest

from duepoint.client import Client, transport

# -- the environment -----------------------------------------------------------------------------


def test_the_environment_says_where_and_who(api, tmp_path):
    token = tmp_path / "token"
    token.write_text("good")
    api.store("a", {"delay": "1h"})

    for who in ({"DUEPOINT_API_TOKEN": "good"}, {"DUEPOINT_API_TOKEN_FILE": str(token)}):
        with Client.from_environment({"DUEPOINT_API_URL": api.url, **who}) as made:
            assert made.schedule_set("shop", "reminders").get("a").id == "a"


def test_a_pod_uses_the_token_of_its_account(tmp_path):
    path = tmp_path / "token"
    assert transport.of_environment({}, pod_file=path) is None
    path.write_text("of the Pod")
    assert transport.of_environment({}, pod_file=path).current() == "of the Pod"


def test_without_a_url_the_message_says_what_to_set():
    with pytest.raises(ValueError, match="DUEPOINT_API_URL is not set"):
        Client.from_environment({})


def test_a_certificate_of_another_authority_is_refused(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        Client("https://api.example.com", ca_file=tmp_path / "none.pem")
