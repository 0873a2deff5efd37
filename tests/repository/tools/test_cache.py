"""The cache of built programs never hands out anything but a complete, unchanged build."""

from __future__ import annotations

import fcntl
import json
import threading
from pathlib import Path

import pytest

from tools.devcluster import cache


class Builder:
    """Writes a program; `calls` counts how often it was needed."""

    def __init__(self, text: str = "program") -> None:
        self.text = text
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "program").write_text(self.text)


def test_a_build_is_made_once_and_then_found(tmp_path):
    build = Builder()

    first = cache.entry(tmp_path, "etcd-v1", build)
    second = cache.entry(tmp_path, "etcd-v1", build)

    assert first == second
    assert (first / "program").read_text() == "program"
    assert build.calls == 1


def test_a_build_that_failed_leaves_nothing_that_looks_finished(tmp_path):
    def failing(folder: Path) -> None:
        (folder / "program").write_text("half")
        raise RuntimeError("compiler killed")

    with pytest.raises(RuntimeError):
        cache.entry(tmp_path, "etcd-v1", failing)

    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
    assert (cache.entry(tmp_path, "etcd-v1", Builder()) / "program").read_text() == "program"


def test_what_a_killed_builder_left_is_removed_by_the_next(tmp_path):
    left = tmp_path / ".unfinished-etcd-v1-4242"
    left.mkdir()
    (left / "program").write_text("half")

    cache.entry(tmp_path, "etcd-v1", Builder())

    assert not left.exists()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda folder: (folder / "program").write_text("other"), id="changed bytes"),
        pytest.param(lambda folder: (folder / "program").unlink(), id="file gone"),
        pytest.param(lambda folder: (folder / cache.MANIFEST).unlink(), id="manifest gone"),
        pytest.param(lambda folder: (folder / cache.MANIFEST).write_text("{"), id="manifest cut"),
    ],
)
def test_a_damaged_entry_is_built_again(tmp_path, damage, capsys):
    build = Builder()
    damage(cache.entry(tmp_path, "etcd-v1", build))

    again = cache.entry(tmp_path, "etcd-v1", build)

    assert build.calls == 2
    assert (again / "program").read_text() == "program"
    assert "damaged" in capsys.readouterr().err


def test_the_manifest_names_the_sum_of_each_program(tmp_path):
    folder = cache.entry(tmp_path, "etcd-v1", Builder("abc"))

    sums = json.loads((folder / cache.MANIFEST).read_text())["sha256"]

    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
    assert sums == {"program": abc}


def test_a_second_builder_waits_and_takes_the_result_of_the_first(tmp_path):
    first, second = Builder("first"), Builder("second")
    reached, go_on = threading.Event(), threading.Event()

    def slow(folder: Path) -> None:
        reached.set()
        assert go_on.wait(60)
        first(folder)

    building = threading.Thread(target=cache.entry, args=(tmp_path, "etcd-v1", slow))
    building.start()
    assert reached.wait(60)
    with (tmp_path / ".etcd-v1.lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    waiting = threading.Thread(target=cache.entry, args=(tmp_path, "etcd-v1", second))
    waiting.start()
    go_on.set()
    building.join(10)
    waiting.join(10)

    assert (first.calls, second.calls) == (1, 0)


def test_fingerprints_follow_content_and_not_order():
    assert cache.fingerprint({"a": "1", "b": "2"}) == cache.fingerprint({"b": "2", "a": "1"})
    assert cache.fingerprint({"a": "1"}) != cache.fingerprint({"a": "2"})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"DUEPOINT_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/duepoint"),
        ({}, str(Path.home() / ".cache" / "duepoint")),
    ],
    ids=["chosen", "xdg", "home"],
)
def test_the_cache_is_where_the_user_wants_it(environment, expected):
    assert str(cache.directory(environment)) == expected
