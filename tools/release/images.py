"""Builds the image for both architectures by docker, and signs files by cosign.

Each step says in a line what it did or why it was left out. A requested step that cannot be done
is an error: pushing without an engine, signing without cosign.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tools.devcluster.errors import DevClusterError

PLATFORMS = "linux/amd64,linux/arm64"
#: Signs by an identity of the machine's OpenID Connect provider, without a key.
KEYLESS = "keyless"


def has_engine() -> bool:
    """Whether docker is here and its daemon answers."""
    if not shutil.which("docker"):
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def build(sources: Path, *, image: str, folder: Path, push: bool, epoch: int) -> tuple[str, str]:
    """Build the image of the sources; return its digest ("" if not pushed), and a summary."""
    if not has_engine():
        if push:
            raise DevClusterError("PUSH needs a container engine, and docker does not answer here")
        return "", "image: left out, no container engine answers here"
    about = folder / "image.json"
    command = ["docker", "buildx", "build", str(sources), f"--platform={PLATFORMS}"]
    command += [f"--tag={image}", f"--metadata-file={about}"]
    # Attach a bill of all materials, those of the base too, as an attestation.
    command += ["--sbom=true", f"--build-arg=SOURCE_DATE_EPOCH={epoch}"]
    command += ["--push" if push else f"--output=type=oci,dest={folder / 'duepoint-image.tar'}"]
    try:
        _run(command)
    except DevClusterError as error:
        if push:
            raise
        about.unlink(missing_ok=True)
        return "", f"image: left out, the container engine cannot build it: {error}"
    digest = str(json.loads(about.read_text())["containerimage.digest"])
    about.unlink()
    return digest if push else "", f"image: {image} for {PLATFORMS}, {digest}"


def sign(files: list[Path], *, key: str, image: str) -> str:
    """Write a bundle beside each file, and sign the image in its registry; return a summary.

    `key` is a key for cosign (a file, env://NAME, a KMS), KEYLESS, or "" for no signatures.
    `image` is a reference by digest, "" if none was pushed.
    """
    if not key:
        return "signatures: left out, COSIGN_KEY names no key"
    if not shutil.which("cosign"):
        raise DevClusterError("COSIGN_KEY is set, but cosign is not installed: install it")
    options = ["--yes"] if key == KEYLESS else ["--yes", f"--key={key}"]
    for path in files:
        bundle = path.with_name(f"{path.name}.sigstore.json")
        _run(["cosign", "sign-blob", *options, f"--bundle={bundle}", str(path)])
    if image:
        _run(["cosign", "sign", *options, image])
    return f"signatures: {', '.join(each.name for each in files)}{', the image' if image else ''}"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise DevClusterError(f"{' '.join(command[:3])} failed: {said}")
