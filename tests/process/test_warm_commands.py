"""Warm commands do what those with a true start do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import warmcommands
from tests.support.pagereader import BIN

WORDS = [
    ["next", "0 9 * * *", "--from", "2026-11-27T00:00:00Z"],
    ["nxt"],
    ["validate", "-", "schedule.yaml"],
    ["queue", "stats"],
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("programs")
    with warmcommands.warm(folder, BIN):
        yield folder


@pytest.mark.parametrize(
    ("program", "words"),
    [*(("duepoint", words) for words in WORDS), ("kubectl-duepoint", ["nxt"])],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_warm_command_answers_as_ever(
    program: str, words: list[str], programs: Path, tmp_path: Path
) -> None:
    (tmp_path / "schedule.yaml").write_text("kind: [")
    environment = {**os.environ, "DUEPOINT_REDIS_URL": "http://wrong", "TZ": "Asia/Tokyo"}
    warm, true = (
        subprocess.run(
            [folder / program, *words],
            cwd=tmp_path, env=environment, input="kind: {", capture_output=True, text=True,
            check=False,
        )
        for folder in (programs, BIN)
    )  # fmt: skip

    assert (warm.returncode, warm.stdout, warm.stderr) == (
        true.returncode, true.stdout, true.stderr,
    )  # fmt: skip
    assert warm.stdout or warm.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_a_warm_command_gets_signals(number: signal.Signals, code: int, programs: Path) -> None:
    with subprocess.Popen(
        [programs / "duepoint", "validate", "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        process.stdin.write("#" * 200_000)
        process.stdin.flush()  # more than a pipe holds: the command reads
        # Python does not see a signal just before a read that blocks, in a true start neither.
        for _ in range(50):
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.4)
                break
        assert process.returncode == code
