"""Redis comes out of a jar that Maven fetches once, and that is held to a checksum."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from tools.devcluster import binaries, redisserver, releases
from tools.devcluster.errors import DevClusterError

_MEMBER = f"redis-server-{redisserver.VERSION}-linux-amd64"


@pytest.fixture(autouse=True)
def platform(monkeypatch):
    monkeypatch.setattr(releases, "this_platform", lambda: "linux-amd64")


@pytest.fixture
def jar(tmp_path, monkeypatch):
    """What Maven has, and what is expected of it."""
    path = tmp_path / "embedded-redis.jar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(_MEMBER, "the program")
    monkeypatch.setattr(redisserver, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


@pytest.fixture
def environment(tmp_path, jar):
    """With a Maven that copies that jar, and counts how often."""
    programs = tmp_path / "programs"
    programs.mkdir()
    maven = programs / "mvn"
    maven.write_text(
        "#!/bin/sh\n"
        f"echo called >> {tmp_path}/calls\n"
        'for word in "$@"; do case "$word" in\n'
        f'  -DoutputDirectory=*) cp {jar} "${{word#*=}}/";;\n'
        "esac; done\n"
    )
    maven.chmod(0o755)
    return {"DUEPOINT_CACHE": str(tmp_path / "cache"), "PATH": f"{programs}:/usr/bin:/bin"}


def test_it_is_fetched_once_and_can_be_run(environment, tmp_path):
    first = binaries.ensure(["redis-server"], environment)["redis-server"]
    second = binaries.ensure(["redis-server"], environment)["redis-server"]

    assert first == second
    assert (first.read_text(), first.name) == ("the program", "redis-server")
    assert first.stat().st_mode & 0o111
    assert (tmp_path / "calls").read_text().split() == ["called"]


def test_other_bytes_are_not_used(environment, jar):
    jar.write_bytes(jar.read_bytes() + b"more")

    with pytest.raises(DevClusterError, match=r"has the sha256 .*, not the pinned one"):
        binaries.ensure(["redis-server"], environment)
    assert not list(Path(environment["DUEPOINT_CACHE"]).rglob("redis-server"))


def test_a_platform_that_the_jar_does_not_have_is_named(environment, monkeypatch):
    monkeypatch.setattr(releases, "this_platform", lambda: "linux-riscv64")

    with pytest.raises(DevClusterError, match=r"no Redis for linux-riscv64; put redis-server 7\.0"):
        binaries.ensure(["redis-server"], environment)


def test_what_maven_says_is_passed_on(environment, jar):
    jar.unlink()

    with pytest.raises(DevClusterError, match=r"could not fetch org\.signal.*\n.*cannot stat"):
        binaries.ensure(["redis-server"], environment)


def test_a_maven_that_does_not_end_is_not_waited_for(environment, tmp_path, monkeypatch):
    monkeypatch.setattr(redisserver, "_MOST_SECONDS", 0.2)
    (tmp_path / "programs" / "mvn").write_text("#!/bin/sh\nexec sleep 60\n")

    with pytest.raises(DevClusterError, match=r"has not fetched org\.signal.* within 0\.2 s"):
        binaries.ensure(["redis-server"], environment)


def test_without_maven_it_is_said_what_would_do(environment, tmp_path):
    with pytest.raises(DevClusterError, match="no mvn on the PATH; install Maven, or put"):
        binaries.ensure(["redis-server"], {**environment, "PATH": str(tmp_path)})


def test_one_of_kubebuilder_assets_is_used(environment, tmp_path):
    assets = tmp_path / "assets"
    assets.mkdir()
    own = assets / "redis-server"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)

    found = binaries.ensure(["redis-server"], {**environment, "KUBEBUILDER_ASSETS": str(assets)})

    assert found["redis-server"] == own
