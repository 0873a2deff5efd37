"""The plugin for krew: its manifest is one that krew takes, and its program is what it says."""

from __future__ import annotations

import copy
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from tools.devcluster.state import REPOSITORY
from tools.release import krew

URL = "https://github.com/example/duepoint.git"


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, dict]:
    (tmp_path / "duepoint-1.2.3-py3-none-any.whl").write_bytes(b"wheel")
    archive, manifest = krew.write(
        tmp_path, REPOSITORY, version="1.2.3", repository_url=URL, epoch=1_700_000_000
    )
    return archive, yaml.safe_load(manifest.read_text())


def test_the_manifest_is_one_that_krew_takes_and_fits_its_archive(made) -> None:
    archive, manifest = made
    assert krew.problems(manifest, archive) == []
    (platform,) = manifest["spec"]["platforms"]
    wanted = "https://github.com/example/duepoint/releases/download/v1.2.3/"
    assert platform["uri"] == f"{wanted}kubectl-duepoint-1.2.3.tar.gz"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("spec", "version"), "1.2.3", "spec.version"),
        (("spec", "shortDescription"), "x" * 51, "spec.shortDescription"),
        (("metadata", "name"), "due point", "metadata.name"),
        (("spec", "platforms", 0, "uri"), "http://example.com/a", "uri: is no https"),
        (("spec", "platforms", 0, "uri"), "https://example.com/other.tar.gz", "uri: does not name"),
        (("spec", "platforms", 0, "sha256"), "0" * 64, "sha256"),
        (("spec", "platforms", 0, "bin"), "duepoint", "is not in the archive"),
        (("spec", "platforms", 0, "bin"), "LICENSE", "cannot be executed"),
        (("spec", "platforms"), [], "spec.platforms"),
    ],
)
def test_what_krew_would_refuse_is_found(made, path, value, said) -> None:
    archive, manifest = made
    changed = copy.deepcopy(manifest)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    (wrong,) = krew.problems(changed, archive)
    assert said in wrong


def test_the_same_sources_give_the_same_archive(made, tmp_path: Path) -> None:
    archive, _ = made
    before = archive.read_bytes()
    archive.unlink()
    again, _ = krew.write(
        tmp_path, REPOSITORY, version="1.2.3", repository_url=URL, epoch=1_700_000_000
    )
    assert again.read_bytes() == before


def test_the_program_makes_its_environment_once_and_hands_on_its_arguments(
    made, tmp_path: Path
) -> None:
    """With a Python that only notes what it is asked for."""
    archive, _ = made
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "plugin", filter="data")
    python, log = tmp_path / "python", tmp_path / "log"
    python.write_text(
        "#!/bin/sh\n"
        f'echo "python $*" >> {log}\n'
        '[ "$1" = -c ] && exit 0\n'
        'mkdir -p "$3/bin"\n'
        "for each in pip kubectl-duepoint; do\n"
        f'  printf \'#!/bin/sh\\necho %s "$@" >> {log}\\n\' "$each" > "$3/bin/$each"\n'
        '  chmod +x "$3/bin/$each"\n'
        "done\n"
    )
    python.chmod(0o755)
    environment = os.environ | {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "DUEPOINT_PYTHON": str(python),
    }
    link = tmp_path / "kubectl-duepoint"
    link.symlink_to(tmp_path / "plugin" / "kubectl-duepoint")
    for _ in range(2):
        subprocess.run([str(link), "why", "a b"], env=environment, check=True)
    said = log.read_text().splitlines()
    assert sum(line.startswith("python -m venv") for line in said) == 1
    [locked] = [line for line in said if "--require-hashes" in line]
    assert "plugin/requirements-cli.lock" in locked
    assert any("--no-deps" in line and line.endswith("none-any.whl") for line in said)
    assert said.count("kubectl-duepoint why a b") == 2


def test_an_old_python_is_named(made, tmp_path: Path) -> None:
    archive, _ = made
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "plugin", filter="data")
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    environment = os.environ | {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "DUEPOINT_PYTHON": str(old),
    }
    done = subprocess.run(
        [str(tmp_path / "plugin" / "kubectl-duepoint"), "version"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Python 3.11 or later" in done.stderr
