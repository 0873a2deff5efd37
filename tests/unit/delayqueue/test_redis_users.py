"""The users that the chart ships: what each may do is what its process does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import duepoint
from duepoint.delayqueue import serverhealth
from duepoint.delayqueue.wire import scripting
from tests.support import redisusers


@pytest.mark.parametrize("role", redisusers.ROLES)
def test_a_shipped_user_may_do_what_its_scripts_and_commands_need_and_nothing_else(role):
    missing = redisusers.used_by(role) - redisusers.rights(role)
    idle = redisusers.rights(role) - redisusers.used_by(role)
    assert not missing, f"charts/duepoint/redis/{role}.acl lacks +{' +'.join(sorted(missing))}"
    assert not idle, f"charts/duepoint/redis/{role}.acl grants what nobody uses: {sorted(idle)}"


@pytest.mark.parametrize("role", redisusers.ROLES)
def test_a_shipped_user_may_touch_our_keys_and_channels_alone(role):
    words = redisusers.line(role).split()
    assert [word for word in words if word.startswith(("~", "%"))] == ["~dp:*"]
    channels = [] if role == "viewer" else ["&dp:*"]  # it only looks
    assert [word for word in words if word.startswith("&")] == channels
    assert "-@all" in words
    categories = [word for word in words if word.startswith("+@")]
    assert categories == (["+@connection"] if role == "api" else [])  # see ``redisusers.rights``
    assert "nopass" not in words


@pytest.mark.parametrize("role", redisusers.ROLES)
def test_no_shipped_user_may_read_or_write_a_servers_configuration(role):
    assert not [right for right in redisusers.rights(role) if right.startswith("config")]


def test_no_part_of_the_program_reads_a_servers_configuration():
    folder = Path(duepoint.__file__).parent
    sources = [*folder.rglob("*.py"), *folder.rglob("*.lua")]
    assert len(sources) > 300
    asking = re.compile(r"""["']CONFIG(["'],\s*["']| )GET["']|config_get""", re.IGNORECASE)
    assert not [path.name for path in sources if asking.search(path.read_text())]


def test_every_script_of_a_worker_exists():
    assert set(scripting.names()) >= redisusers.WORKER_SCRIPTS


@pytest.mark.parametrize(
    ("role", "checked"),
    [("worker", serverhealth.BY_WORKERS), ("operator", serverhealth.BY_OPERATORS)],
)
def test_every_right_to_keys_and_channels_is_asked_for_at_the_start(role, checked):
    needed = redisusers.rights(role) - redisusers.PLAIN - {"wait"}  # only beside a replica
    needed |= redisusers.rights(role) & {"hget", "hmget", "ssubscribe", "sunsubscribe"}
    assert {command.lower() for command in checked} == needed
