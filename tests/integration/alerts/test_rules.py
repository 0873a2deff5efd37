"""promtool loads the alert rules, and each alert begins and ends when it should."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import yaml

from tests.support import gotools

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "charts" / "duepoint" / "files" / "alerts.yaml"
CASES = Path(__file__).with_name("alerts_test.yaml")


def _promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [gotools.program("promtool"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def _copied(folder: Path) -> Path:
    """The cases, beside the rules without annotations: promtool compares those word by word."""
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (folder / RULES.name).write_text(yaml.safe_dump(rules))
    return Path(shutil.copy(CASES, folder))


def test_prometheus_takes_the_rules_with_their_templates() -> None:
    checked = _promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_begins_and_ends_when_it_should(tmp_path: Path) -> None:
    tested = _promtool("test", "rules", _copied(tmp_path))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_rule_that_never_fires_fails_the_cases(tmp_path: Path) -> None:
    cases = _copied(tmp_path)
    rules = tmp_path / RULES.name
    rules.write_text(rules.read_text().replace("duepoint_oldest_due_seconds", "duepoint_oldest"))
    tested = _promtool("test", "rules", cases)
    assert tested.returncode != 0
    assert "DuepointLag" in tested.stdout + tested.stderr
