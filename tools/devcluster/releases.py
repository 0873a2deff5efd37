"""Official release binaries, used instead of a build if their checksum is pinned.

``tools/controlplane/releases.json`` has the files of a release, by module and platform, with the
SHA-256 or SHA-512 that their project publishes. A file with other bytes is never kept.
``DUEPOINT_RELEASES`` is the address of a mirror (it need not be trusted), with ``<host>/<path>``
below it, or ``off``. Downloads are tried only briefly; after any error the build follows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.client
import json
import platform
import shutil
import tarfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tools.devcluster import progress

PINS = Path(__file__).parent.parent / "controlplane" / "releases.json"
SETTING = "DUEPOINT_RELEASES"
OFF = "off"
_CONNECT_SECONDS = 3.0
_CHUNK_BYTES = 1024 * 1024
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclasses.dataclass(frozen=True, slots=True)
class Pin:
    """One program of a release.

    Attributes:
        url: its official address.
        member: the program's name in a tar archive.
        sha256, sha512: of the bytes at that address, in hexadecimal digits; either of them.
    """

    url: str
    member: str = ""
    sha256: str = ""
    sha512: str = ""

    @property
    def checksum(self) -> tuple[str, str]:
        """Return the name of the algorithm, and the digits."""
        return ("sha512", self.sha512) if self.sha512 else ("sha256", self.sha256)


def pins_of(module: str, version: str, path: Path = PINS) -> dict[str, Pin]:
    """Return program -> its pin on this platform; empty if this version is not pinned."""
    recorded = json.loads(path.read_text()).get(f"{module} {version}", {})
    return {name: Pin(**pin) for name, pin in recorded.get(this_platform(), {}).items()}


def this_platform() -> str:
    """Return the platform as releases name it: linux-amd64."""
    machine = platform.machine()
    return f"{platform.system().lower()}-{_MACHINES.get(machine, machine)}"


def fetched_into(
    folder: Path,
    names: Iterable[str],
    pins: Mapping[str, Pin],
    environment: Mapping[str, str],
    *,
    seconds: float,
) -> bool:
    """Fetch programs of a release; return whether ``folder`` now has all, else it has none.

    Args:
        seconds: the limit for all of them.
    """
    wanted = list(names)
    source = environment.get(SETTING, "").strip()
    if source == OFF or not wanted or not set(wanted) <= set(pins):
        return False
    deadline = time.monotonic() + seconds
    for name in wanted:
        try:
            _fetch(pins[name], source, folder / name, deadline)
        except (OSError, http.client.HTTPException, tarfile.TarError, KeyError, ValueError) as why:
            for one in wanted:
                (folder / one).unlink(missing_ok=True)
            progress.say(f"  {pins[name].url} is not used: {why}; building from source")
            return False
    return True


def address(url: str, source: str) -> str:
    """Return the address of a file: below the mirror, if there is one."""
    if not source:
        return url
    parts = urllib.parse.urlsplit(url)
    return f"{source.rstrip('/')}/{parts.netloc}{parts.path}"


@contextlib.contextmanager
def opened(url: str) -> Iterator[Iterator[bytes]]:
    """Yield the bytes at an address; raise OSError, also during the reading."""
    with urllib.request.urlopen(url, timeout=_CONNECT_SECONDS) as answer:
        yield iter(lambda: answer.read1(_CHUNK_BYTES), b"")


def _fetch(pin: Pin, source: str, path: Path, deadline: float) -> None:
    url, (algorithm, wanted) = address(pin.url, source), pin.checksum
    digest = hashlib.new(algorithm)
    received = path.with_name(f".{path.name}.received")
    try:
        with opened(url) as chunks, received.open("wb") as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
                if time.monotonic() > deadline:
                    raise OSError("it comes too slowly")
        if digest.hexdigest() != wanted:
            raise OSError(f"it has the {algorithm} {digest.hexdigest()}, not the pinned one")
        if pin.member:
            with tarfile.open(received) as archive, path.open("wb") as target:
                file_in_it = archive.extractfile(pin.member)
                assert file_in_it is not None
                shutil.copyfileobj(file_in_it, target)
        else:
            received.rename(path)
        path.chmod(0o755)
    finally:
        received.unlink(missing_ok=True)
