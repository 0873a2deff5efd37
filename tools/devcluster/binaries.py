"""The programs of a cluster, and where each comes from.

The sources in order: the folder `KUBEBUILDER_ASSETS`, the cache, the project's own release if its
checksum is pinned (`releases`), a Go build; the last two fill the cache. A recipe is a module under
`tools/controlplane/` (go.mod and go.sum pin every byte) and the commands built from it. Redis,
which is not Go, is in a jar (`redisserver`). `DUEPOINT_KUBERNETES` chooses another version of
Kubernetes than the newest.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tools.devcluster import cache, progress, redisserver, releases, toolchain
from tools.devcluster.errors import DevClusterError

MODULES = Path(__file__).parent.parent / "controlplane"
#: The values of `DUEPOINT_KUBERNETES`, and the version of each; the first is the default.
KUBERNETES_VERSIONS = {"1.36": "v1.36.3", "1.35": "v1.35.4", "1.34": "v1.34.4"}
KUBERNETES_VERSION = KUBERNETES_VERSIONS["1.36"]
KUBERNETES_SETTING = "DUEPOINT_KUBERNETES"
_VERSION_PACKAGE = "k8s.io/component-base/version"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Commands built together from one pinned Go module; `seconds` on 2 cores, caches empty."""

    module: str
    version: str
    commands: Mapping[str, str]
    seconds: int
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tags: str = ""

    def only(self, names: Iterable[str]) -> Recipe:
        wanted = {name: self.commands[name] for name in names}
        return dataclasses.replace(self, commands=wanted)

    @property
    def ldflags(self) -> str:
        """Return flags that drop symbols, and record the version, as `go build` alone would not."""
        return " ".join(["-s -w", *(f"-X {key}={value}" for key, value in self.variables.items())])


def _one(
    name: str, version: str, package: str, *, seconds: int, variables: Mapping[str, str] = {}
) -> Recipe:
    """Return the recipe of a module whose only command has its name."""
    return Recipe(
        module=name, version=version, commands={name: package}, seconds=seconds, variables=variables
    )


def _kubernetes(minor: str) -> Recipe:
    version = KUBERNETES_VERSIONS[minor]
    servers = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    return Recipe(
        module="kubernetes" if version == KUBERNETES_VERSION else f"kubernetes-{minor}",
        version=version,
        commands={name: f"k8s.io/kubernetes/cmd/{name}" for name in servers},
        seconds=330,
        variables=_version_variables(version),
    )


def _version_variables(version: str) -> dict[str, str]:
    """Return the variables of a version such as v1.36.3 that a server reports of itself."""
    major, minor, _ = version.removeprefix("v").split(".")
    return {
        f"{_VERSION_PACKAGE}.gitVersion": version,
        f"{_VERSION_PACKAGE}.gitMajor": major,
        f"{_VERSION_PACKAGE}.gitMinor": minor,
    }


_KUBERNETES = {minor: _kubernetes(minor) for minor in KUBERNETES_VERSIONS}
_HELM_TAKES_FOR_THE_CLUSTERS = {
    f"helm.sh/helm/v3/pkg/{package}.k8sVersion{part}": number
    for package in ("lint/rules", "chartutil")
    for part, number in (("Major", "1"), ("Minor", "36"))
}
_OTHERS = (
    _one("etcd", "v3.6.8", "go.etcd.io/etcd/server/v3", seconds=60),
    _one("kwok", "v0.8.0", "sigs.k8s.io/kwok/cmd/kwok", seconds=70),
    _one(
        "helm", "v3.22.0", "helm.sh/helm/v3/cmd/helm", seconds=70,
        variables={
            "helm.sh/helm/v3/internal/version.version": "v3.22.0", **_HELM_TAKES_FOR_THE_CLUSTERS
        },
    ),
    _one("kube-state-metrics", "v2.18.0", "k8s.io/kube-state-metrics/v2", seconds=60),
    Recipe(
        module="prometheus", version="v0.316.0", seconds=170,
        commands={"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
        tags="remove_all_sd",  # it discovers no targets, so it needs no cloud's client
    ),
    # A real node (`tools.realnode`): its control plane has the same version.
    Recipe(
        module="kubernetes-node", version=KUBERNETES_VERSION, seconds=70,
        commands={name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kubelet", "kube-proxy")},
        variables=_version_variables(KUBERNETES_VERSION),
    ),
    _one("coredns", "v1.14.7", "duepoint.dev/controlplane/coredns", seconds=80),
    _one(
        "kube-router", "v2.1.0", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
        seconds=100,
    ),
    _one("vegeta", "v12.13.0", "github.com/tsenart/vegeta/v12", seconds=20),
)  # fmt: skip
#: Modules built side by side, so that waits of one (sources, a one-core linker) cost no time.
AT_A_TIME = 2
CLUSTER = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
)


def ensure(names: Iterable[str], environment: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Return the path of each named program, and build those that are missing."""
    wanted = list(names)
    found = provided(environment, wanted)
    if redisserver.NAME in set(wanted) - set(found):
        found[redisserver.NAME] = redisserver.ensure(environment)
    recipes = needed(set(wanted) - set(found), environment)
    _build_missing([each for each in recipes if not _is_cached(each, environment)], environment)
    for recipe in recipes:
        found |= built(recipe, environment)
    if unknown := set(wanted) - set(found):
        raise DevClusterError(f"no recipe for {', '.join(sorted(unknown))}")
    return {name: found[name] for name in wanted}


def _build_missing(recipes: Sequence[Recipe], environment: Mapping[str, str]) -> None:
    """Build missing recipes, the longest first; after a failure begin no other build."""
    if not recipes:
        return
    names = ", ".join(each.module for each in recipes)
    longest_first = sorted(recipes, key=lambda each: -each.seconds)
    with (
        progress.long_step(f"Building {names}, once", sum(each.seconds for each in recipes)),
        concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool,
    ):
        builds = {pool.submit(built, each, environment): each for each in longest_first}
        try:
            for build in concurrent.futures.as_completed(builds):
                build.result()
                progress.say(f"  {builds[build].module} is ready")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _is_cached(recipe: Recipe, environment: Mapping[str, str]) -> bool:
    return (cache.directory(environment) / "binaries" / cache_key(recipe)).exists()


def not_cached(names: Iterable[str], environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the modules that `ensure` would have to build first."""
    wanted = list(names)
    missing = set(wanted) - set(provided(environment, wanted))
    recipes = needed(missing, environment)
    return [recipe.module for recipe in recipes if not _is_cached(recipe, environment)]


def chosen_kubernetes(environment: Mapping[str, str] = os.environ) -> str:
    """Return the control plane's minor version, such as 1.36; one without recipe is an error."""
    minor = environment.get(KUBERNETES_SETTING) or next(iter(KUBERNETES_VERSIONS))
    if minor not in KUBERNETES_VERSIONS:
        known = ", ".join(KUBERNETES_VERSIONS)
        raise DevClusterError(f"{KUBERNETES_SETTING}={minor} is not built here; write {known}")
    return minor


def needed(names: Iterable[str], environment: Mapping[str, str]) -> list[Recipe]:
    """Return the whole recipes for `names`, without what KUBEBUILDER_ASSETS provides.

    Whole, so that one build serves a request for a command today and for its sibling tomorrow.
    """
    wanted = set(names)
    recipes = []
    for recipe in (*_OTHERS, _KUBERNETES[chosen_kubernetes(environment)]):
        if wanted & set(recipe.commands):
            given = provided(environment, recipe.commands)
            recipes.append(recipe.only(name for name in recipe.commands if name not in given))
    return recipes


def provided(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, Path]:
    """Return those of `names` in the folder `KUBEBUILDER_ASSETS`; a wrong folder is an error."""
    chosen = environment.get("KUBEBUILDER_ASSETS")
    if not chosen:
        return {}
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise DevClusterError(f"KUBEBUILDER_ASSETS={chosen} is not a folder; unset or correct it")
    candidates = {name: folder / name for name in names}
    return {name: path for name, path in candidates.items() if os.access(path, os.X_OK)}


def built(recipe: Recipe, environment: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Return the commands of `recipe` from the cache."""
    root = cache.directory(environment) / "binaries"
    build = functools.partial(_make, recipe, environment)
    folder = cache.entry(root, cache_key(recipe), build)
    return {name: folder / name for name in recipe.commands}


def cache_key(recipe: Recipe) -> str:
    """Return a key of pins, our own sources, flags, commands and platform."""
    sources = sorted((MODULES / recipe.module).glob("*"))
    parts = {path.name: path.read_text() for path in sources if path.is_file()}
    parts["commands"] = " ".join(f"{name}={package}" for name, package in recipe.commands.items())
    parts["ldflags"] = recipe.ldflags
    if recipe.tags:
        parts["tags"] = recipe.tags
    parts["platform"] = f"{platform.system()} {platform.machine()}"
    return f"{recipe.module}-{recipe.version}-{cache.fingerprint(parts)}"


def _make(recipe: Recipe, environment: Mapping[str, str], folder: Path) -> None:
    """Fetch the commands of `recipe`, or else build them."""
    is_fetched = releases.fetched_into(
        folder,
        recipe.commands,
        releases.pins_of(recipe.module, recipe.version),
        environment,
        seconds=recipe.seconds / 2,
    )
    if not is_fetched:
        compile_into(recipe, folder)


def compile_into(recipe: Recipe, folder: Path) -> None:
    """Build each command of `recipe` as `folder/NAME`."""
    # One call compiles all shared code in parallel; it names results by package.
    _go_build(toolchain.go(), recipe, folder)
    for name, package in recipe.commands.items():
        by_package = folder / package_command(package)
        if by_package != folder / name:
            by_package.rename(folder / name)


def package_command(package: str) -> str:
    """Return the file name that `go build` chooses: the last part that is not a major version."""
    *_, before, last = ["", *package.split("/")]
    return before if last[:1] == "v" and last[1:].isdigit() else last


def _go_build(compiler: Path, recipe: Recipe, folder: Path) -> None:
    command = [str(compiler), "build", "-trimpath", "-buildvcs=false", "-mod=readonly"]
    command += ["-tags", recipe.tags, "-ldflags", recipe.ldflags, "-o", f"{folder}/"]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
    done = subprocess.run(
        [*command, *recipe.commands.values()],
        cwd=MODULES / recipe.module, env=environment, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-15:])
        raise DevClusterError(f"go build failed in tools/controlplane/{recipe.module}:\n{last}")
