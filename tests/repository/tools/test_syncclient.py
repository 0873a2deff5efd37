"""The blocking client is what its source gives, and nothing asynchronous is left in it."""

from __future__ import annotations

import inspect
import re

from duepoint.client import AsyncClient, AsyncSetClient, Client, SetClient
from tools import syncclient


def test_the_blocking_client_is_what_the_asynchronous_one_gives():
    assert syncclient.generated(syncclient.SOURCE.read_text()) == syncclient.TARGET.read_text()


def test_nothing_asynchronous_is_left():
    code = syncclient.TARGET.read_text().split('"""\n', 1)[1]
    assert re.findall(r"\b(?:async|await|asyncio|Async\w+|\w*aclose\w*|aiter\w*)\b", code) == []


def test_both_have_the_same_methods_with_the_same_parameters():
    for one, other in ((AsyncClient, Client), (AsyncSetClient, SetClient)):
        names = {name for name in vars(one) if not name.startswith("_")} - {"aclose"}
        assert names == {name for name in vars(other) if not name.startswith("_")} - {"close"}
        for name in names:
            mine, theirs = getattr(one, name), getattr(other, name)
            if callable(mine):
                assert list(inspect.signature(mine).parameters) == list(
                    inspect.signature(theirs).parameters
                )
                assert mine.__doc__
