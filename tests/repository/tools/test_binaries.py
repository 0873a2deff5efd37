"""Programs come from KUBEBUILDER_ASSETS, then the cache, then a build."""

from __future__ import annotations

import dataclasses
import re
import threading
from pathlib import Path

import pytest

from tools.devcluster import binaries, progress, toolchain
from tools.devcluster.errors import DevClusterError


@pytest.fixture
def environment(tmp_path):
    return {"DUEPOINT_CACHE": str(tmp_path / "cache"), "DUEPOINT_RELEASES": "off"}


def a_program(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_program_is_built_once(environment, compiled):
    first = binaries.ensure(["etcd"], environment)
    second = binaries.ensure(["etcd"], environment)

    assert first == second
    assert compiled == ["etcd"]


def test_siblings_of_one_module_are_built_together(environment, compiled):
    binaries.ensure(["kube-scheduler"], environment)
    binaries.ensure(["kube-apiserver"], environment)

    assert compiled == ["kube-apiserver", "kube-controller-manager", "kube-scheduler"]


def test_programs_of_kubebuilder_assets_are_used_and_only_the_rest_is_built(
    environment, compiled, tmp_path
):
    assets = tmp_path / "assets"
    etcd = a_program(assets, "etcd")
    api_server = a_program(assets, "kube-apiserver")
    environment["KUBEBUILDER_ASSETS"] = str(assets)

    found = binaries.ensure(["etcd", "kube-apiserver", "kube-scheduler"], environment)

    assert (found["etcd"], found["kube-apiserver"]) == (etcd, api_server)
    assert compiled == ["kube-controller-manager", "kube-scheduler"]


def test_a_file_that_cannot_be_executed_is_not_taken_from_kubebuilder_assets(
    environment, compiled, tmp_path
):
    assets = tmp_path / "assets"
    a_program(assets, "etcd").chmod(0o644)
    environment["KUBEBUILDER_ASSETS"] = str(assets)

    binaries.ensure(["etcd"], environment)

    assert compiled == ["etcd"]


def test_a_wrong_kubebuilder_assets_is_said_and_not_ignored(environment):
    environment["KUBEBUILDER_ASSETS"] = "/nowhere/at/all"

    with pytest.raises(DevClusterError, match="KUBEBUILDER_ASSETS=/nowhere/at/all"):
        binaries.ensure(["etcd"], environment)


def test_an_unknown_program_is_named(environment):
    with pytest.raises(DevClusterError, match="no recipe for minikube"):
        binaries.ensure(["minikube"], environment)


@pytest.mark.parametrize("minor", list(binaries.KUBERNETES_VERSIONS)[1:])
def test_an_older_control_plane_is_built_where_it_is_asked_for(environment, compiled, minor):
    newest = binaries.ensure(["etcd", "kube-apiserver"], environment)
    older = binaries.ensure(
        ["etcd", "kube-apiserver"], {**environment, "DUEPOINT_KUBERNETES": minor}
    )

    assert older["etcd"] == newest["etcd"]
    assert older["kube-apiserver"].parent.name.startswith(f"kubernetes-{minor}-v{minor}.")
    assert newest["kube-apiserver"].parent.name.startswith("kubernetes-v")


def test_a_control_plane_without_a_recipe_is_refused(environment):
    with pytest.raises(DevClusterError, match=r"KUBERNETES=1\.20 .* write 1\.36, 1\.35"):
        binaries.ensure(["etcd"], {**environment, "DUEPOINT_KUBERNETES": "1.20"})


def test_what_would_have_to_be_built_is_known_beforehand(environment, compiled):
    assert binaries.not_cached(["etcd", "kwok"], environment) == ["etcd", "kwok"]

    binaries.ensure(["etcd"], environment)

    assert binaries.not_cached(["etcd", "kwok"], environment) == ["kwok"]


def test_another_version_pin_or_flag_is_another_entry(tmp_path, monkeypatch):
    monkeypatch.setattr(binaries, "MODULES", tmp_path)
    (tmp_path / "etcd").mkdir()
    pins = tmp_path / "etcd" / "go.sum"
    pins.write_text("one")
    recipe = next(one for one in binaries.RECIPES if one.module == "etcd")
    before = binaries.cache_key(recipe)

    flagged = dataclasses.replace(recipe, variables={"version": "2"})
    assert binaries.cache_key(flagged) != before
    pins.write_text("two")
    assert binaries.cache_key(recipe) != before


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("go.etcd.io/etcd/server/v3", "server"),
        ("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
    ],
)
def test_results_are_found_under_the_name_go_gives_them(package, command):
    assert binaries.package_command(package) == command


@pytest.mark.parametrize("recipe", binaries.RECIPES, ids=lambda recipe: recipe.module)
def test_the_version_of_a_recipe_is_the_one_its_module_pins(recipe):
    pins = (binaries.MODULES / recipe.module / "go.mod").read_text()

    # A module that only a tool needs is called indirect.
    assert re.search(rf" {re.escape(recipe.version)}( // indirect)?\n", pins), (
        f"tools/controlplane/{recipe.module}/go.mod does not pin {recipe.version}"
    )


@pytest.mark.parametrize(
    ("says", "version"),
    [("go version go1.26.8 linux/amd64", (1, 26)), ("go version devel", None), ("", None)],
)
def test_the_version_of_go_is_read(tmp_path, says, version):
    program = tmp_path / "go"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)

    assert toolchain.version_of(program) == version


def test_an_old_go_is_not_used(tmp_path, monkeypatch):
    old = tmp_path / "go"
    old.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(toolchain, "_from_pypi", lambda: Path("from-pypi"))

    assert toolchain.go() == Path("from-pypi")


def test_what_is_missing_is_built_two_at_a_time_the_longest_first(environment, monkeypatch):
    begun: list[str] = []
    both = threading.Barrier(2, timeout=30)

    def compile_into(recipe, folder: Path) -> None:
        begun.append(recipe.module)
        if len(begun) <= 2:
            both.wait()
        for name in recipe.commands:
            (folder / name).write_text(name)

    monkeypatch.setattr(binaries, "compile_into", compile_into)

    binaries.ensure(["etcd", "kwok", "kube-scheduler"], environment)

    assert set(begun[:2]) == {"kubernetes", "kwok"}
    assert begun[2:] == ["etcd"]


def test_a_build_that_fails_is_said_and_ends_the_others(environment, monkeypatch):
    others: list[str] = []

    def compile_into(recipe, folder: Path) -> None:
        if recipe.module == "kubernetes":
            raise DevClusterError("go build failed in tools/controlplane/kubernetes")
        others.append(recipe.module)

    monkeypatch.setattr(binaries, "AT_A_TIME", 1)
    monkeypatch.setattr(binaries, "compile_into", compile_into)

    with pytest.raises(DevClusterError, match="controlplane/kubernetes"):
        binaries.ensure(["etcd", "kwok", "kube-scheduler"], environment)

    assert others == []


class _Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_time_left_goes_by_how_long_the_finished_builds_took():
    seconds = _Seconds()
    together = progress.SideBySide({"kubernetes": 330, "etcd": 60, "kwok": 70}, seconds)
    assert together.line() == "0 s, about 7 min 40 s left for kubernetes, etcd, kwok"

    seconds.now = 280.0  # a slow machine: 120 s of work were to be done by now
    together.finish("etcd")
    assert together.line() == "4 min 40 s, about 13 min 13 s left for kubernetes, kwok"


def test_the_time_left_goes_down_until_the_next_build_is_finished():
    seconds = _Seconds()
    together = progress.SideBySide({"kubernetes": 330, "etcd": 60, "kwok": 70}, seconds)
    seconds.now = 280.0
    together.finish("etcd")
    seconds.now = 400.0
    assert together.line() == "6 min 40 s, about 11 min 13 s left for kubernetes, kwok"
    seconds.now = 2000.0
    assert together.line() == "33 min 20 s, longer than usual for kubernetes, kwok"
