"""CronJob's library, robfig/cron v3.0.1, asked through a small Go program that is compiled once."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "robfig"


@pytest.fixture(scope="session")
def cronjob(tmp_path_factory):
    """Asks robfig/cron: (text, start, count) -> unix seconds, or the error's text."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed, so CronJob's own library cannot be asked")
    binary = tmp_path_factory.mktemp("robfig") / "robfig"
    built = subprocess.run(
        [go, "build", "-o", str(binary), "."],
        cwd=PROGRAM,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        pytest.skip(f"robfig/cron could not be built: {built.stderr.strip()[-300:]}")

    def ask(questions):
        lines = "".join(json.dumps(question) + "\n" for question in questions)
        answers = subprocess.run(
            [str(binary)], input=lines, capture_output=True, text=True, check=True
        )
        return [
            line if line.startswith("error") else [int(second) for second in line.split()]
            for line in answers.stdout.split("\n")[:-1]
        ]

    return ask
