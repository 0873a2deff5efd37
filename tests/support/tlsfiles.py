"""A test CA and certificates that it signed, as files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.support import certificates


@dataclasses.dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """A CA; ``issue`` signs for a name.

    Attributes:
        file: its certificate.
    """

    def __init__(self, folder: Path, name: str = "ca", *, is_old: bool = False) -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._authority = certificates.Authority(name, is_old=is_old)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._authority.pem)

    def issue(self, name: str, host: str, *, expired: bool = False) -> Issued:
        """Issue a certificate for a host or address, in a folder of this name like a Secret's."""
        pair = self._authority.signs(host, expired=expired)
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        issued = Issued(folder / "tls.crt", folder / "tls.key")
        issued.certificate.write_bytes(pair.certificate)
        issued.key.write_bytes(pair.key)
        return issued
