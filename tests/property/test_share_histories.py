"""Places and bytes of several owners, in any history."""

from __future__ import annotations

import collections

from hypothesis import given
from hypothesis import strategies as st

from duepoint import shares

OWNERS = st.sampled_from("abcde")


@given(
    places=st.integers(1, 64),
    greed=st.sampled_from([1, 3, None]),
    wishes=st.lists(st.tuples(OWNERS, st.booleans()), max_size=300),
)
def test_no_history_gives_out_more_places_than_there_are_or_more_than_a_share(
    places, greed, wishes
):
    given_out = shares.Shares(places, greed=greed)
    held = collections.Counter()
    for owner, takes in wishes:
        if takes and given_out.has_room(owner):
            given_out.take(owner)
            held[owner] += 1
        elif not takes and held[owner]:
            given_out.give_back(owner)
            held[owner] -= 1
        assert given_out.taken == held.total() <= places
        assert given_out.held(owner) == held[owner]
        if given_out.taken < places:
            assert given_out.has_room("newcomer")


@given(wants=st.lists(st.integers(0, 300), min_size=1, max_size=6), places=st.integers(8, 256))
def test_whoever_wants_little_gets_it_and_the_others_equal_parts(wants, places):
    given_out = shares.Shares(places)
    moved = True
    while moved:
        moved = False
        for owner, wanted in enumerate(wants):
            if given_out.held(owner) < wanted and given_out.has_room(owner):
                given_out.take(owner)
                moved = True
    held = [given_out.held(owner) for owner in range(len(wants))]
    unmet = [has for has, wanted in zip(held, wants, strict=True) if has < wanted]
    if unmet:
        assert max(unmet) - min(unmet) <= 1
        assert max(held) <= max(unmet) + 1  # nobody has more than those who want more


@given(
    puts=st.lists(
        st.tuples(st.sampled_from("xyz"), st.integers(0, 9), st.integers(0, 120)), max_size=200
    )
)
def test_no_history_holds_more_bytes_than_there_are_or_evicts_who_holds_less(puts):
    cache = shares.BytesCache(200)
    sizes = {}
    for namespace, key, size in puts:
        before = {name: cache._sizes.get(name, 0) for name in "xyz"}
        cache.put(namespace, key, (namespace, key), size)
        sizes[namespace, key] = size
        held = {name: cache._sizes.get(name, 0) for name in "xyz"}
        assert sum(held.values()) == cache.size <= 200
        for name in set("xyz") - {namespace}:
            assert held[name] == before[name] or before[name] > 200 // 3 - 120
            if held[name] < before[name]:  # it held the most when it had to give
                assert before[name] >= max(held.values())
        kept = sum(
            size
            for (name, one), size in sizes.items()
            if name == namespace and cache.get(name, one) is not None
        )
        assert kept == held[namespace]
