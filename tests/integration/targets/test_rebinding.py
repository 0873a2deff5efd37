"""A name server that changes its answers, asked through the system as the product asks it.

The scene is ``tests.support.rebinding``, in namespaces of its own: what must not be connected to
has a listener there, and would answer.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys

import pytest

OWN_MACHINE = ("unshare", "--map-root-user", "--mount", "--net")


def _has_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*OWN_MACHINE, "true"], check=False, capture_output=True)
    return tried.returncode == 0


async def test_a_name_server_that_rebinds_leads_to_no_forbidden_address():
    if not await asyncio.to_thread(_has_namespaces):
        pytest.skip("needs user, mount and network namespaces (util-linux's unshare)")
    process = await asyncio.create_subprocess_exec(
        *OWN_MACHINE,
        sys.executable,
        "-m",
        "tests.support.rebinding",
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    found = json.loads(said)

    public, *forbidden = found["connections"]
    assert forbidden == [0, 0, 0, 0]
    assert public == 1
    assert found["outcomes"] == [
        ["rebinding.test", "Delivered", ""],
        ["rebinding.test", "Rejected", "BlockedAddress"],
        ["rebinding.test", "Rejected", "BlockedAddress"],
        ["rebinding.test", "Rejected", "BlockedAddress"],
        ["mixed.test", "Rejected", "BlockedAddress"],
        ["metadata-last.test", "Rejected", "BlockedAddress"],
        ["six.test", "Rejected", "BlockedAddress"],
        ["mapped.test", "Rejected", "BlockedAddress"],
    ]
    assert found["questions"]["rebinding.test"] == 4, "one look-up for each that is dialled"
