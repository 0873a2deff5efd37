"""Commands put into bytes by hiredis.

redis-py reads replies with hiredis, but on asyncio it writes commands value by value in Python
(8.1.0), which for a script with four thousand arguments costs more than the script itself. Values
that hiredis does not know are left to the library's own way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hiredis
import redis.asyncio

if TYPE_CHECKING:
    _Base = redis.asyncio.Connection
else:
    _Base = object


class _PacksInC(_Base):
    """Goes in front of any connection class."""

    def pack_command(self, *args: Any) -> list[bytes]:  # noqa: ANN401 - the library's own
        first = args[0]
        if isinstance(first, str) and " " not in first:
            try:
                return [hiredis.pack_command(args)]
            except TypeError:
                pass
        return super().pack_command(*args)


def pack_in_c(pool: redis.asyncio.ConnectionPool) -> None:
    """Connections that this pool makes from now on write by hiredis."""
    own = pool.connection_class
    if not issubclass(own, _PacksInC):
        pool.connection_class = type(f"Packing{own.__name__}", (_PacksInC, own), {})
