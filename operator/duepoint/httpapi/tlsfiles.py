"""The certificate of the API, read again when its Secret changes.

The kubelet swaps the files of a mounted Secret under our feet. The context stays the same, so new
connections get the new certificate and open ones go on. A pair that does not fit is reported and
the former one kept: a certificate in the middle of being replaced must not end the service.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from pathlib import Path

from duepoint import errors, settings, telemetry, tlsrules

CHECK_SECONDS = 10.0


class ServerCertificate:
    """A server's context over a certificate and its key, in the same file or in tls.key beside."""

    def __init__(self, cert_file: Path) -> None:
        """Raises InvalidSetting where the files hold no pair."""
        self._cert_file = cert_file
        self._key_file = tlsrules.key_beside(cert_file) or cert_file
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        self._known = self._digest()
        try:
            self.context.load_cert_chain(cert_file, self._key_file)
        except (OSError, ssl.SSLError) as error:
            name = settings.variable("tls_cert_file")
            message = f"{cert_file} and {self._key_file} are no certificate and its key ({error})"
            raise errors.InvalidSetting(name, message) from error

    async def watch(self) -> None:
        """Follow the files until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.reload()

    def reload(self) -> bool:
        """Take a changed pair; whether there was one."""
        try:
            digest = self._digest()
            if digest == self._known:
                return False
            # Into a context of its own first: a pair that does not fit must not be half taken.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert_file, self._key_file)
            self.context.load_cert_chain(self._cert_file, self._key_file)
        except (OSError, ssl.SSLError) as error:
            telemetry.logger.warning("new certificate not taken", error=str(error)[:200])
            return False
        self._known = digest
        telemetry.logger.info("certificate taken", file=str(self._cert_file))
        return True

    def _digest(self) -> bytes:
        data = self._cert_file.read_bytes() + b"\0" + self._key_file.read_bytes()
        return hashlib.sha256(data).digest()
