"""A CA of the test's own, and certificates that it signed."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """A CA; ``issue`` signs for a name."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-days", "2", "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.file,
        )  # fmt: skip

    def issue(self, name: str, alternative: str) -> Issued:
        """A certificate for ``alternative``, such as DNS:redis.example.com."""
        base = self._folder / name
        issued = Issued(base.with_suffix(".crt"), base.with_suffix(".key"))
        request, extensions = base.with_suffix(".csr"), base.with_suffix(".ext")
        extensions.write_text(f"subjectAltName={alternative}\n")
        _openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-subj", f"/CN={name}", "-keyout", issued.key, "-out", request,
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self._key,
            "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", issued.certificate,
        )  # fmt: skip
        return issued


def _openssl(*arguments: object) -> None:
    command = ["openssl", *(str(argument) for argument in arguments)]
    subprocess.run(command, check=True, capture_output=True)
