"""Official release binaries in place of a build, where their checksum is pinned here.

``tools/controlplane/releases.json`` has, for a module and a platform, the files of a release with
their SHA-256 or SHA-512, whichever the source of the checksum publishes. A file whose bytes differ
is never kept. Without an entry the module is built from its sources, which go.sum pins.

``DUEPOINT_RELEASES`` says where files are fetched: unset means the projects' own addresses, an
address is a mirror that has ``<host>/<path>`` below it, and ``off`` fetches nothing. A mirror need
not be trusted.

Fetching is tried briefly: three seconds to connect, and no longer than half the usual time of the
build. After any error the build follows.
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
        member: the program's name in the archive, where that is a tar archive.
        sha256, sha512: of the bytes at that address, in hexadecimal digits; either of them.
    """

    url: str
    member: str = ""
    sha256: str = ""
    sha512: str = ""

    @property
    def checksum(self) -> tuple[str, str]:
        """The name of the algorithm, and the digits."""
        return ("sha512", self.sha512) if self.sha512 else ("sha256", self.sha256)


class NotFetched(Exception):
    """Why a release is not used, in words for the reader."""


def pins_of(module: str, version: str, path: Path = PINS) -> dict[str, Pin]:
    """Program -> its pin on this platform; empty where this version is not pinned."""
    recorded = json.loads(path.read_text()).get(f"{module} {version}", {})
    return {name: Pin(**pin) for name, pin in recorded.get(this_platform(), {}).items()}


def this_platform() -> str:
    """As releases name it: linux-amd64."""
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
    """Whether ``folder`` has all these programs of a release now; if not, it has none.

    Args:
        seconds: how long it may take in all.
    """
    wanted = list(names)
    source = environment.get(SETTING, "").strip()
    if source == OFF or not wanted or not set(wanted) <= set(pins):
        return False
    deadline = time.monotonic() + seconds
    try:
        for name in wanted:
            _fetch(pins[name], source, folder / name, deadline)
    except NotFetched as why:
        for name in wanted:
            (folder / name).unlink(missing_ok=True)
        progress.say(f"  {why}; building from source")
        return False
    return True


def address(url: str, source: str) -> str:
    """Where a file is fetched: below the mirror, if there is one."""
    if not source:
        return url
    parts = urllib.parse.urlsplit(url)
    return f"{source.rstrip('/')}/{parts.netloc}{parts.path}"


@contextlib.contextmanager
def opened(url: str) -> Iterator[Iterator[bytes]]:
    """The bytes at an address; raises NotFetched, also while they are read."""
    try:
        with urllib.request.urlopen(url, timeout=_CONNECT_SECONDS) as answer:
            yield iter(lambda: answer.read1(_CHUNK_BYTES), b"")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotFetched(f"{url} cannot be fetched: {error}") from error


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
                    raise NotFetched(f"{url} comes too slowly")
        if digest.hexdigest() != wanted:
            raise NotFetched(f"{url} has the {algorithm} {digest.hexdigest()}, not the pinned one")
        if pin.member:
            _unpack(received, pin.member, path)
        else:
            received.rename(path)
        path.chmod(0o755)
    finally:
        received.unlink(missing_ok=True)


def _unpack(archive: Path, member: str, path: Path) -> None:
    """One file of an archive whose bytes are the pinned ones."""
    try:
        with tarfile.open(archive) as opened_archive:
            file = opened_archive.extractfile(member)
            if file is None:
                raise NotFetched(f"{member} in the archive is no file")
            with file, path.open("wb") as target:
                shutil.copyfileobj(file, target)
    except (tarfile.TarError, KeyError) as error:
        raise NotFetched(f"{member} cannot be taken out of the archive: {error}") from error
