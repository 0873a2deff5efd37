"""Caches bounded by bytes: a flood of one namespace pushes out its own entries only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duepoint import shares


def test_a_flood_of_one_namespace_leaves_what_another_one_holds():
    cache = shares.BytesCache(1000)
    cache.put("quiet", "a", "A", 100)
    for number in range(500):
        cache.put("hostile", number, number, 250)
    assert cache.get("quiet", "a") == "A"
    assert cache.bytes_of("hostile") == 750


def test_of_the_largest_namespace_the_longest_unused_goes():
    cache = shares.BytesCache(400)
    for key in "abcd":
        cache.put("team", key, key, 100)
    assert cache.get("team", "a") == "a"
    cache.put("team", "e", "e", 100)
    assert cache.peek("team", "b") is None
    assert [cache.peek("team", key) for key in "acde"] == list("acde")


def test_what_would_fill_more_than_half_is_not_kept():
    cache = shares.BytesCache(100)
    cache.put("team", "a", "old", 10)
    cache.put("team", "a", "new", 51)
    assert cache.get("team", "a") is None
    assert cache.size == 0


@given(
    puts=st.lists(
        st.tuples(st.sampled_from("xyz"), st.integers(0, 9), st.integers(0, 120)), max_size=200
    )
)
def test_no_history_holds_more_bytes_than_there_are_or_evicts_who_holds_less(puts):
    cache = shares.BytesCache(200)
    sizes = {}
    for namespace, key, size in puts:
        before = {name: cache.bytes_of(name) for name in "xyz"}
        cache.put(namespace, key, (namespace, key), size)
        sizes[namespace, key] = size
        held = {name: cache.bytes_of(name) for name in "xyz"}
        assert sum(held.values()) == cache.size <= 200
        for name in set("xyz") - {namespace}:
            assert held[name] == before[name] or before[name] > 200 // 3 - 120
            if held[name] < before[name]:  # it held the most when it had to give
                assert before[name] >= max(held.values())
        kept = sum(
            size
            for (name, one), size in sizes.items()
            if name == namespace and cache.peek(name, one) is not None
        )
        assert kept == held[namespace]


def test_nothing_is_kept_of_namespaces_that_hold_nothing():
    cache = shares.BytesCache(100)
    for number in range(50):
        cache.put(f"team-{number}", "a", "A", 40)
    assert len(cache) == 2
    assert len(cache._sizes) == len(cache._kept) == 2
