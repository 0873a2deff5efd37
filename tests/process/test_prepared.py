"""Processes that have imported Duepoint before behave as the true command."""

from __future__ import annotations

import signal

import pytest

from duepoint.faults import FaultPoint
from tests.support.process import Process
from tests.support.waiting import wait_until
from tools.devcluster import ports


@pytest.fixture
def settings(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    login = tmp_path / "kubeconfig"
    login.write_text(
        '{"apiVersion": "v1", "kind": "Config", "current-context": "a",'
        ' "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}],'
        ' "users": [{"name": "a", "user": {"token": "x"}}],'
        ' "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}'
    )
    return {
        "DUEPOINT_REDIS_URL": "redis://127.0.0.1:9/0",  # nothing answers there
        "DUEPOINT_BLOB_KEY_FILE": str(key),
        "DUEPOINT_KUBECONFIG": str(login),
        "DUEPOINT_HTTP_HOST": "127.0.0.1",
        "DUEPOINT_HTTP_PORT": str(ports.any_free()),
    }


@pytest.fixture
def start(tmp_path):
    started = []

    def start(role, environment, **how):
        log = tmp_path / f"{len(started)}.log"
        process = Process(role, role, environment, log, **{"is_prepared": True, **how})
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.end()


async def test_a_wrong_setting_is_refused_in_the_same_words_and_with_the_same_code(start, settings):
    wrong = {**settings, "DUEPOINT_SHARDS": "7"}
    ends = {}
    for is_prepared in (True, False):
        process = start("operator", wrong, is_prepared=is_prepared)
        ends[is_prepared] = (await process.wait_for_end(), process.log.read_text())
    assert ends[True] == ends[False]
    assert ends[True][0] == 2
    assert "DUEPOINT_SHARDS" in ends[True][1]


def wait_until_it_looks_for_its_queue(process, times=1):
    wait_until(
        lambda: process.log.read_text().count("waiting for the queue") >= times,
        "the worker says that its queue is away",
    )


async def test_it_is_drained_by_a_signal_and_started_again(start, settings):
    process = start("worker", settings)
    for times in (1, 2):
        wait_until_it_looks_for_its_queue(process, times)
        assert not process.has_ended
        assert await process.drain() == 0
        assert process.has_ended
        if times == 1:
            process.start()


async def test_a_killed_one_says_so(start, settings):
    process = start("worker", settings)
    await process.kill()
    assert process.has_ended
    assert await process.wait_for_end() == -signal.SIGKILL


async def test_it_may_wait_for_a_fault_point(start, settings):
    process = start("worker", settings, dies_at=FaultPoint.AFTER_CLAIM)
    wait_until_it_looks_for_its_queue(process)
    assert not process.has_ended
