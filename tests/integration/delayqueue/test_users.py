"""What the users of ``charts/duepoint/redis`` may do on each kind of server, as it says itself."""

from __future__ import annotations

import pytest
import redis

from duepoint import errors
from duepoint.delayqueue import delayqueue
from tests.support import queueing, redisusers

#: Each is of a category that a user has something of, or would undo what the others may do.
REFUSED = (
    ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "ID", "1"),
    ("CLIENT", "PAUSE", "1"),
    ("COMMAND", "COUNT"),
    ("READONLY",),
    ("CONFIG", "GET", "requirepass"),
    ("ACL", "LIST"),
    ("FLUSHALL",),
    ("KEYS", "*"),
    ("BLPOP", "dp:list", "1"),
)


def may(client, role, *command):
    """What the server says of the command for this user: OK, or why not."""
    try:
        said = client.execute_command("ACL", "DRYRUN", redisusers.name(role), *command)
    except redis.ResponseError as error:
        return str(error)
    return said.decode() if isinstance(said, bytes) else said


@pytest.mark.parametrize("role", redisusers.ROLES)
def test_nothing_else_is_allowed(redis_server, role):
    with redis_server.client() as client:
        allowed = [command for command in REFUSED if may(client, role, *command) == "OK"]
    assert allowed == []


def test_the_api_may_wait_for_safety_where_the_server_knows_how(redis_server):
    with redis_server.client() as client:
        assert may(client, "api", "WAIT", "0", "1") == "OK"
        if redis_server.kind == "valkey":  # Redis 7.0 has no such command
            assert may(client, "api", "WAITAOF", "0", "0", "1") == "OK"


async def test_a_user_that_may_not_run_info_is_named_that_right(own_server):
    with own_server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "narrow", "on", "nopass", "~*", "&*", "+@all", "-info"
        )
    url = own_server.url.replace("://", "://narrow:x@")
    queue = delayqueue.connect(url, blob_key=queueing.BLOB_KEY)
    with pytest.raises(errors.QueueUnavailable, match=r"may not run INFO; grant it \+info"):
        await queue.health.problems()
    await queue.close()
