"""``duepoint run`` as a process: what it sends is received, and what it is shown it does."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pty
import queue
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

#: A start takes two seconds of CPU, and on a machine at a load of 15 half a minute.
LONGEST_SECONDS = 120.0
#: Makes its standard input the terminal of its session, and goes on as its arguments.
_ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    " os.execv(sys.argv[1], sys.argv[1:])"
)

Record = dict[str, Any]


def a_schedule(name: str, **spec: Any) -> Record:
    return {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": name},
        "spec": {"schedule": "@every 1s", **spec},
    }


def a_job(name: str, script: str, **changes: Any) -> Record:
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script], **changes}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return a_schedule(name, jobTemplate={"spec": {"template": {"spec": pod}}})


def write(file: Path, *objects: Record) -> None:
    """As an editor puts a file in place."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text("\n---\n".join(json.dumps(each) for each in objects))
    fresh.replace(file)


class Running:
    """The command, and the records that it has written so far."""

    def __init__(self, *arguments: str | Path) -> None:
        environment = {**os.environ, "DUEPOINT_LOG_LEVEL": "debug"}  # of another installation
        self.process = subprocess.Popen(
            [sys.executable, "-m", "duepoint", "run", *map(str, arguments), "-o", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.records: list[Record] = []
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def wait_for(self, event: str, holds: Callable[[Record], bool] = lambda _: True) -> Record:
        """The next such record."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            line = self._lines.get(timeout=left)
            if not line:
                break
            record = json.loads(line)
            self.records.append(record)
            if record["event"] == event and holds(record):
                return record
        raise AssertionError(f"no {event} among {self.records}; {self.error()}")

    def wait_for_run(self, schedule: str, state: str) -> Record:
        return self.wait_for("run", lambda it: (it["schedule"], it["state"]) == (schedule, state))

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(LONGEST_SECONDS)

    def rest(self) -> list[Record]:
        """Everything up to its end."""
        self.process.wait(LONGEST_SECONDS)
        while line := self._lines.get(timeout=LONGEST_SECONDS):
            self.records.append(json.loads(line))
        return self.records

    def error(self) -> str:
        if self.process.poll() is None:
            self.process.kill()
        assert self.process.stderr is not None
        return self.process.stderr.read()


@contextlib.contextmanager
def running(*arguments: str | Path) -> Iterator[Running]:
    started = Running(*arguments)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
        started.process.wait()


@pytest.fixture
def received() -> Iterator[tuple[str, queue.Queue[tuple[str, Record]]]]:
    """The address of a receiver, and what it got: header ``webhook-id`` and body."""
    got: queue.Queue[tuple[str, Record]] = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.put((self.headers["webhook-id"], json.loads(body)))
            self.send_response(202)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}", got
    server.shutdown()
    server.server_close()


def valkey_runs(port: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(port)), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True


def port_of(ready: Record) -> str:
    return str(ready["redisUrl"]).rpartition(":")[2].partition("/")[0]


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_webhook_is_received_and_a_stream_entry_appended(tmp_path, received):
    address, got = received
    hook = a_schedule("hook", payload={"report": "daily"}, webhook={"url": f"http://{address}/a"})
    write(tmp_path / "all.json", hook, a_schedule("ticks", stream={"name": "ticks"}))
    with running("-f", tmp_path) as command:
        ready = command.wait_for("ready")
        record = command.wait_for_run("hook", "Succeeded")
        command.wait_for_run("ticks", "Succeeded")
        with redis.Redis.from_url(ready["redisUrl"], decode_responses=True, protocol=2) as server:
            entries = server.xrange("dp:stream:default:ticks")
        assert command.end() == 0
    assert record["httpStatus"] == 202
    bodies = [got.get_nowait() for _ in range(got.qsize())]
    hooks = [body["data"] for _, body in bodies if body["data"]["schedule"]["name"] == "hook"]
    assert hooks[0]["payload"] == {"report": "daily"}
    assert hooks[0]["scheduled_time"] == record["scheduledTime"]
    assert all(identity.startswith("msg_") for identity, _ in bodies)
    assert entries[0][1]["trigger"] in (
        "Schedule",
        "CatchUp",
    )  # more than 10 s late on a busy machine
    assert not valkey_runs(port_of(ready))


def test_the_exit_code_of_a_command_is_the_result_of_its_job(tmp_path):
    well = a_job("well", 'test "$0" = "$DUEPOINT_SCHEDULED_TIME" && echo "slot $GREETING"')
    container = well["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    container |= {
        "env": [{"name": "GREETING", "value": "hello"}],
        "args": ["$(DUEPOINT_SCHEDULED_TIME)"],
    }
    badly = a_job("badly", "echo out of paper >&2; exit 3")
    nothing = a_job("nothing", "")
    del nothing["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["command"]
    write(tmp_path / "jobs.json", well, badly, nothing)
    with running("-f", tmp_path / "jobs.json", "--exec", "--once") as command:
        records = command.rest()
        assert command.process.returncode == 1
    ends = {
        each["schedule"]: each
        for each in records
        if each["event"] == "run" and each["state"] in ("Succeeded", "Failed")
    }
    assert {name: each["state"] for name, each in ends.items()} == {
        "well": "Succeeded",
        "badly": "Failed",
        "nothing": "Failed",
    }
    assert "exit code 3; its last line: out of paper" in ends["badly"]["message"]
    assert "write command" in ends["nothing"]["message"]
    output = {each["line"] for each in records if each["event"] == "output"}
    assert output == {"slot hello", "out of paper"}


def test_an_edit_a_new_file_and_a_deletion_count_while_it_runs(tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write(first, a_schedule("one", stream={"name": "before"}))
    with running("-f", tmp_path) as command:
        command.wait_for_run("one", "Succeeded")
        write(first, a_schedule("one", stream={"name": "after"}))
        command.wait_for("object", lambda it: it["change"] == "changed")
        command.wait_for("run", lambda it: "stream after" in it["message"])
        write(second, a_schedule("two", stream={"name": "two"}))
        command.wait_for_run("two", "Succeeded")
        first.unlink()
        deleted = command.wait_for("object", lambda it: it["change"] == "deleted")
        slots = [command.wait_for_run("two", "Succeeded")["scheduledTime"] for _ in range(3)]
        later = [
            each for each in command.records if each["event"] == "run" and each["schedule"] == "one"
        ]
        assert command.end() == 0
    assert (deleted["name"], deleted["file"]) == ("one", str(first))
    assert later[-1]["scheduledTime"] < slots[1]


@pytest.mark.parametrize(
    ("name", "content", "field", "said"),
    [
        (
            "field.yaml",
            json.dumps(a_schedule("bad", schedule="61 * * * *", stream={"name": "x"})).encode(),
            "spec.schedule",
            "61",
        ),
        ("binary.yaml", bytes(range(256)) * 64, "", "UTF-8"),
        (
            "bomb.yaml",
            b"a: &a [x, x, x, x, x, x, x, x, x]\n"
            + b"".join(
                b"%c: &%c [%s]\n" % (new, new, b", ".join([b"*%c" % old] * 9))
                for old, new in zip(b"abcdefgh", b"bcdefghi", strict=True)
            ),
            "",
            "values",
        ),
        ("large.json", b'{"kind": "' + b"x" * (33 << 20) + b'"}', "", "32 MiB"),
        ("other.yaml", b"services: {web: {image: nginx}}\n", "", "not a Kubernetes object"),
    ],
    ids=["a wrong field", "bytes", "aliases that explode", "too large", "no object"],
)
def test_a_bad_file_is_one_message_and_the_others_go_on(tmp_path, name, content, field, said):
    write(tmp_path / "good.json", a_schedule("good", stream={"name": "good"}))
    (tmp_path / name).write_bytes(content)
    with running("-f", tmp_path) as command:
        refused = command.wait_for("refused")
        command.wait_for_run("good", "Succeeded")
        write(tmp_path / name, a_schedule("mended", stream={"name": "mended"}))
        command.wait_for_run("mended", "Succeeded")
        assert command.end() == 0
    assert (refused["file"], refused["field"]) == (str(tmp_path / name), field)
    assert said in refused["message"]
    assert len([each for each in command.records if each["event"] == "refused"]) == 1


def test_a_live_view_says_what_goes_on_of_a_broken_manifest_and_leaves_a_summary(tmp_path):
    """On a terminal of 80 columns; the folder is looked through with its folders."""
    file = tmp_path / "deep" / "one.json"
    file.parent.mkdir()
    write(file, a_schedule("one", stream={"name": "one"}))
    terminal, theirs = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    command = [sys.executable, "-m", "duepoint", "run", tmp_path]
    # A session of its own, whose terminal this is: q is read by its foreground alone.
    process = subprocess.Popen(
        [sys.executable, "-c", _ON_TERMINAL, *map(str, command)],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""},
    )  # fmt: skip
    os.close(theirs)
    shown = ""

    def shows(*texts: str) -> bool:
        """The last screen, without colours and line ends."""
        nonlocal shown
        if select.select([terminal], [], [], 1)[0]:
            with contextlib.suppress(OSError):  # it has ended
                shown += os.read(terminal, 65_536).decode()
        screen = " ".join(re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", " ", shown.rpartition("UTC")[2]).split())
        return all(text in screen for text in texts)

    try:
        eventually(lambda: shows("one", "Succeeded"), "it fires")
        write(file, a_schedule("one", stream={"name": "one", "maxLength": "many"}))
        eventually(lambda: shows("former runs", "spec.stream.maxLength"), "its row says so")
        os.write(terminal, b"q")
        eventually(lambda: process.poll() is not None, "q ends it")
        eventually(lambda: shows("succeeded", "maxLength"), shown)
        assert shown.rpartition("\x1b[?1049l")[2].strip(), "the summary is not of the view"
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def test_a_time_limit_ends_it_and_a_failed_run_is_its_exit_code(tmp_path):
    dead = a_schedule("dead", webhook={"url": "http://127.0.0.1:1/", "retry": {"maxAttempts": 1}})
    write(tmp_path / "one.json", dead)
    with running("-f", tmp_path, "--for", "4s") as command:
        records = command.rest()
        assert command.process.returncode == 1
    assert records[-1]["event"] == "stopped"
    assert any(each["event"] == "run" and each["state"] == "Failed" for each in records)


def test_attempts_that_fail_until_the_end_are_counted_and_said(tmp_path):
    """With the usual retries no run of a dead receiver has ended after some seconds."""
    write(tmp_path / "one.json", a_schedule("dead", webhook={"url": "http://127.0.0.1:1/"}))
    with running("-f", tmp_path, "--for", "1h") as command:
        command.wait_for_run("dead", "Retrying")
        assert command.end() == 1
        stopped = command.rest()[-1]
    assert stopped["retrying"] + stopped["failed"] > 0
    assert "dead (" in stopped["message"]
    assert "Network" in stopped["message"]


def test_once_ends_with_the_first_failure_and_not_with_the_last_retry(tmp_path):
    write(
        tmp_path / "all.json",
        a_schedule("dead", webhook={"url": "http://127.0.0.1:1/"}),
        a_schedule("well", stream={"name": "well"}),
    )
    with running("-f", tmp_path, "--once") as command:
        records = command.rest()
        assert command.process.returncode == 1
    message = records[-1]["message"]
    assert message.startswith("1 run succeeded, 1 failed and would be tried again; dead (1): ")
