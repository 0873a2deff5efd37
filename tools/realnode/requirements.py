"""The requirements of a real node: Linux, root, namespaces, and some programs.

What Debian and Ubuntu have as packages is installed when we are root there; `missing` names the
rest. containerd is unpacked into the cache, not installed: its package would start a service.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.devcluster import cache, progress
from tools.devcluster.errors import DevClusterError

#: Program -> the package of Debian and Ubuntu that has it.
PROGRAMS: Mapping[str, str] = {
    "buildah": "buildah",
    "busybox": "busybox-static",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "ipset": "ipset",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "nsenter": "util-linux",
    "runc": "runc",
    "unshare": "util-linux",
}
CNI = Path("/usr/lib/cni")
CNI_PACKAGE = "containernetworking-plugins"
RUNTIME = ("containerd", "containerd-shim-runc-v2", "ctr")
ELSEWHERE = "Use CLUSTER=current with a cluster of your own instead: `kind create cluster` will do."
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"  # a user's PATH may lack them
_NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup")


def ensure() -> None:
    """Install what is missing; an error names what cannot be installed."""
    os.environ["PATH"] += f":{_SYSTEM_PATH}"
    if fault := missing():
        raise DevClusterError(f"no real node here: {fault}. {ELSEWHERE}")
    packages = _packages_to_install()
    if packages:
        with progress.long_step(f"Installing {', '.join(packages)} by apt", 30):
            _apt("update", "--quiet")
            _apt("install", "--quiet", "--yes", "--no-install-recommends", *packages)


def missing() -> str:
    """Return what a real node lacks here that apt cannot install; empty if nothing."""
    if platform.system() != "Linux":
        return "it needs Linux"
    if os.geteuid() != 0:
        return "it needs root, for namespaces and cgroups"
    if not Path("/sys/fs/cgroup").is_dir():
        return "no cgroups are mounted at /sys/fs/cgroup"
    if (packages := _packages_to_install()) and not shutil.which("apt-get"):
        return f"it needs {', '.join(packages)} (names of Debian's packages)"
    if not shutil.which("containerd") and not shutil.which("apt-get"):
        return "it needs containerd"
    return "" if shutil.which("unshare") is None else _namespace_fault()


def runtime() -> dict[str, Path]:
    """Return containerd and its helpers: the machine's own, or those of Debian's package."""
    own = {name: Path(shutil.which(name) or "") for name in RUNTIME}
    if all(path.is_file() for path in own.values()):
        return own
    return unpacked("containerd", *RUNTIME)


def unpacked(package: str, *programs: str) -> dict[str, Path]:
    """Return programs of a Debian package, unpacked into the cache."""
    policy = _output("apt-cache", "policy", package) if shutil.which("apt-cache") else ""
    versions = [line.split()[1] for line in policy.splitlines() if "Candidate:" in line]
    if not versions or versions[0] == "(none)":
        raise DevClusterError(f"apt does not know the package {package}; install it yourself")

    def unpack(folder: Path) -> None:
        with progress.long_step(f"Fetching {package}", 10):
            _output("apt-get", "download", package, cwd=folder)
            archive = next(folder.glob(f"{package}_*.deb"))
            _output("dpkg", "--extract", str(archive), str(folder / "package"))
        for name in programs:
            (folder / "package" / "usr" / "bin" / name).rename(folder / name)
        archive.unlink()
        shutil.rmtree(folder / "package")

    key = f"{package}-{versions[0].replace(':', '-')}"
    folder = cache.entry(cache.directory() / "binaries", key, unpack)
    return {name: folder / name for name in programs}


def _packages_to_install() -> list[str]:
    wanted = {package for program, package in PROGRAMS.items() if not shutil.which(program)}
    if not (CNI / "bridge").exists():
        wanted.add(CNI_PACKAGE)
    return sorted(wanted)


@functools.cache
def _namespace_fault() -> str:
    command = ["unshare", *_NAMESPACES, "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return f"namespaces or mounts are refused here ({result.stderr.strip()[-200:]})"
    return ""


def _apt(*arguments: str) -> None:
    os.environ.setdefault("DEBIAN_FRONTEND", "noninteractive")
    _output("apt-get", *arguments)


def _output(*command: str, cwd: Path | None = None) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    if result.returncode:
        said = (result.stderr or result.stdout).strip()[-1000:]
        raise DevClusterError(f"{' '.join(command[:3])} failed: {said}")
    return result.stdout
