"""`make release` as it is run: what is in its folder, and that another run gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tools import helm
from tools.devcluster.state import REPOSITORY
from tools.release import building, manifests, versions

# The tests of the chart use helm, too, and build it where it is missing.
pytestmark = [pytest.mark.xdist_group("chart"), pytest.mark.timeout(300)]
IMAGE = "registry.example.com/duepoint"


def released(folder: Path, commit: str, **environment: str) -> str:
    options = ("--out", str(folder), "--image", IMAGE, "--commit", commit)
    done = subprocess.run(
        [sys.executable, "-m", "tools.release", *options],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        umask=int(environment.get("UMASK", "022"), 8),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def commit() -> str:
    """Asked once: a commit made while the tests run is another release."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("there is no history of the repository here")
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory, commit: str) -> Path:
    folder = tmp_path_factory.mktemp("release")
    released(folder, commit)
    return folder


def test_every_file_is_there_and_has_its_checksum(release: Path) -> None:
    version = versions.version()
    listed = dict(
        reversed(line.split("  ")) for line in (release / "SHA256SUMS").read_text().splitlines()
    )

    assert set(listed) == {
        "crds.yaml",
        f"duepoint-{version}-py3-none-any.whl",
        f"duepoint-{version}.cdx.json",
        f"duepoint-{version}.tar.gz",
        f"duepoint-{version}.tgz",
        "duepoint.krew.yaml",
        "duepoint.schema.json",
        "install.yaml",
        f"kubectl-duepoint-{version}.tar.gz",
        "provenance.intoto.json",
    }
    assert {path.name for path in release.iterdir()} == {*listed, "SHA256SUMS"}
    for name, digest in listed.items():
        assert hashlib.sha256((release / name).read_bytes()).hexdigest() == digest, name
    said = json.loads((release / "provenance.intoto.json").read_text())["subject"]
    stated = {one["name"]: one["digest"]["sha256"] for one in said}
    assert stated.items() <= listed.items()
    assert set(listed) - set(stated) == {"provenance.intoto.json"}


def test_another_run_elsewhere_gives_the_same_bytes(
    release: Path, commit: str, tmp_path: Path
) -> None:
    released(
        tmp_path, commit,
        TZ="Asia/Tokyo", UMASK="077", PYTHONHASHSEED="7", LANG="C", HOME=str(tmp_path.parent),
        DUEPOINT_TOOL_HELM=str(helm.program()),
    )  # fmt: skip

    assert building.sums(tmp_path) == building.sums(release)


def test_manifests_differ_from_the_base_in_the_image_only(release: Path, commit: str) -> None:
    version = versions.version()
    told = (
        (release / "install.yaml").read_text().replace(f"{IMAGE}:{version}", f"duepoint:{version}")
    )
    committed = subprocess.run(
        ["git", "show", f"{commit}:{manifests.BASE.relative_to(REPOSITORY)}"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told == committed.stdout


def test_the_crds_are_all_in_one_file(release: Path) -> None:
    names = {
        one["metadata"]["name"] for one in yaml.safe_load_all((release / "crds.yaml").read_text())
    }
    assert names == {
        f"{each}.duepoint.dev" for each in ("schedules", "scheduleruns", "schedulesets")
    }


def test_the_wheel_has_scripts_schema_and_command(release: Path) -> None:
    [wheel] = release.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    sources = REPOSITORY / "operator" / "duepoint"
    scripts = {str(path.relative_to(sources.parent)) for path in sources.rglob("*.lua")}
    assert scripts
    assert scripts <= set(names)
    assert {"duepoint/model/jobspec.json", "duepoint/py.typed"} <= set(names)
    assert any(name.endswith("entry_points.txt") for name in names)
