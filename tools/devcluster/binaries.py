"""Which program comes from where.

In order: the folder `KUBEBUILDER_ASSETS` names, the cache, a Go build into the cache. A recipe is
a Go module under `tools/controlplane/` (go.mod and go.sum pin every byte) and the commands built
from it; modules are separate because together they would push one another's dependencies.
`ensure` gives paths that exist and have been verified; running them is left to `programs`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.devcluster import cache, progress, toolchain
from tools.devcluster.errors import DevClusterError

MODULES = Path(__file__).parent.parent / "controlplane"
KUBERNETES_VERSION = "v1.36.3"
_VERSION_PACKAGE = "k8s.io/component-base/version"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Commands built together from one pinned Go module; `seconds` on 2 cores, caches empty."""

    module: str
    version: str
    commands: Mapping[str, str]
    seconds: int
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def only(self, names: Iterable[str]) -> Recipe:
        wanted = {name: self.commands[name] for name in names}
        return dataclasses.replace(self, commands=wanted)

    @property
    def ldflags(self) -> str:
        """Without symbols, and with the version that `go build` alone would not record."""
        return " ".join(["-s -w", *(f"-X {key}={value}" for key, value in self.variables.items())])


RECIPES = (
    Recipe(
        module="credentials",
        version="1",
        commands={"credentials": "duepoint.dev/controlplane/credentials"},
        seconds=30,
    ),
    Recipe(
        module="etcd",
        version="v3.6.8",
        commands={"etcd": "go.etcd.io/etcd/server/v3"},
        seconds=60,
    ),
    Recipe(
        module="kubernetes",
        version=KUBERNETES_VERSION,
        commands={
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        },
        seconds=330,
        variables={
            f"{_VERSION_PACKAGE}.gitVersion": KUBERNETES_VERSION,
            f"{_VERSION_PACKAGE}.gitMajor": "1",
            f"{_VERSION_PACKAGE}.gitMinor": "36",
        },
    ),
    Recipe(
        module="kwok",
        version="v0.8.0",
        commands={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
        seconds=70,
    ),
    Recipe(
        module="helm",
        version="v3.22.0",
        commands={"helm": "helm.sh/helm/v3/cmd/helm"},
        seconds=70,
        variables={
            "helm.sh/helm/v3/internal/version.version": "v3.22.0",
            # What `helm template` and `helm lint` take for the cluster's version.
            "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": "1",
            "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": "36",
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": "1",
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": "36",
        },
    ),
)
CLUSTER = (
    "credentials",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
)


def ensure(names: Iterable[str], environment: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """The path of each named program, built first where needed."""
    wanted = list(names)
    found = provided(environment, wanted)
    for recipe in needed(set(wanted) - set(found), environment):
        found |= built(recipe, environment)
    if unknown := set(wanted) - set(found):
        raise DevClusterError(f"no recipe for {', '.join(sorted(unknown))}")
    return {name: found[name] for name in wanted}


def not_cached(names: Iterable[str], environment: Mapping[str, str] = os.environ) -> list[str]:
    """Modules that `ensure` would have to build first."""
    wanted = list(names)
    root = cache.directory(environment) / "binaries"
    missing = set(wanted) - set(provided(environment, wanted))
    recipes = needed(missing, environment)
    return [recipe.module for recipe in recipes if not (root / cache_key(recipe)).exists()]


def needed(names: Iterable[str], environment: Mapping[str, str]) -> list[Recipe]:
    """Recipes for `names`, each whole but for what KUBEBUILDER_ASSETS has.

    Whole, so that asking for one command today and for its sibling tomorrow is one build.
    """
    wanted = set(names)
    recipes = []
    for recipe in RECIPES:
        if wanted & set(recipe.commands):
            given = provided(environment, recipe.commands)
            recipes.append(recipe.only(name for name in recipe.commands if name not in given))
    return recipes


def provided(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, Path]:
    """Programs of `names` in the folder `KUBEBUILDER_ASSETS`; a wrong folder is an error."""
    chosen = environment.get("KUBEBUILDER_ASSETS")
    if not chosen:
        return {}
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise DevClusterError(f"KUBEBUILDER_ASSETS={chosen} is not a folder; unset or correct it")
    candidates = {name: folder / name for name in names}
    return {name: path for name, path in candidates.items() if os.access(path, os.X_OK)}


def built(recipe: Recipe, environment: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """The commands of `recipe` from the cache."""
    root = cache.directory(environment) / "binaries"
    build = functools.partial(compile_into, recipe)
    folder = cache.entry(root, cache_key(recipe), build)
    return {name: folder / name for name in recipe.commands}


def cache_key(recipe: Recipe) -> str:
    """Changes with the pins, our own sources, the flags, the commands and the platform."""
    sources = sorted((MODULES / recipe.module).glob("*"))
    parts = {path.name: path.read_text() for path in sources if path.is_file()}
    parts["commands"] = " ".join(f"{name}={package}" for name, package in recipe.commands.items())
    parts["ldflags"] = recipe.ldflags
    parts["platform"] = f"{platform.system()} {platform.machine()}"
    return f"{recipe.module}-{recipe.version}-{cache.fingerprint(parts)}"


def compile_into(recipe: Recipe, folder: Path) -> None:
    """Build each command of `recipe` as `folder/NAME`."""
    names = ", ".join(recipe.commands)
    compiler = toolchain.go()
    with progress.long_step(f"Building {names} {recipe.version}, once", recipe.seconds):
        # One call compiles everything they share in parallel; it names results by package.
        _go_build(compiler, recipe, folder)
    for name, package in recipe.commands.items():
        by_package = folder / package_command(package)
        if by_package != folder / name:
            by_package.rename(folder / name)


def package_command(package: str) -> str:
    """The file name `go build` gives a command: the last element that is not a major version."""
    *_, before, last = ["", *package.split("/")]
    return before if last[:1] == "v" and last[1:].isdigit() else last


def _go_build(compiler: Path, recipe: Recipe, folder: Path) -> None:
    command = [str(compiler), "build", "-trimpath", "-buildvcs=false", "-mod=readonly"]
    command += ["-ldflags", recipe.ldflags, "-o", f"{folder}/", *recipe.commands.values()]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
    result = subprocess.run(
        command,
        cwd=MODULES / recipe.module,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode:
        last = "\n".join(result.stdout.splitlines()[-15:])
        raise DevClusterError(f"go build failed in tools/controlplane/{recipe.module}:\n{last}")
