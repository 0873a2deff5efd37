"""The manifests of examples/, in the order of their folders.

They name the receiver by its usual address; should that port be taken on this machine, the text is
changed on its way to the cluster, and the files stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tools.devcluster.state import REPOSITORY
from tools.up import receiver
from tools.up.kubectl import Kubectl

FOLDER = REPOSITORY / "examples"


def apply(kubectl: Kubectl, port: int, folder: Path = FOLDER) -> int:
    """Apply them all; gives the number of objects."""
    return sum(len(kubectl.apply(text)) for text in manifests(folder, port))


def manifests(folder: Path, port: int) -> Iterator[str]:
    """The text of each manifest, calling the receiver where it really listens."""
    usual = f"http://{receiver.HOST}:{receiver.PORT}/"
    for path in sorted(folder.glob("[0-9]*/*.yaml")):
        yield path.read_text().replace(usual, f"http://{receiver.HOST}:{port}/")
