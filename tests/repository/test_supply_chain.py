"""What is shipped is locked and licensed, and nothing foreign decides what a build does."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tools.devcluster import binaries, releases
from tools.release import archives, bases, building, krew, provenance, sbom

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
BUILD, FINAL = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
WORKFLOWS = {
    path.stem: yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
}
PERMISSIVE = re.compile(r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation")


def test_everything_that_is_copied_into_the_image_exists_and_is_let_through() -> None:
    let_through = (ROOT / ".dockerignore").read_text().splitlines()
    lines = re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, flags=re.MULTILINE)
    copied = [source for line in lines for source in line.split()[:-1]]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in let_through


def test_every_install_is_locked_with_hashes_or_is_our_own_wheel() -> None:
    installs = re.findall(r"pip (?:--python \S+ )?install [^&\n]*", DOCKERFILE)
    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes" in install or "--no-deps dist/" in install


def test_the_last_stage_installs_nothing_and_keeps_no_pip() -> None:
    assert "install" not in FINAL.replace("uninstall", "")
    assert "pip uninstall" in FINAL
    assert "apt" not in FINAL


def test_the_image_runs_as_nobody_as_the_chart_says() -> None:
    assert re.search(r"^USER 65532:65532$", FINAL, flags=re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["duepoint"\]$', FINAL, flags=re.MULTILINE)
    values = (ROOT / "charts/duepoint/values.yaml").read_text()
    assert re.search(r"^runAsUser: 65532$", values, flags=re.MULTILINE)


def test_the_dockerfile_has_one_base_that_every_stage_uses() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert len(re.findall(r"^ARG BASE=", text, re.MULTILINE)) == 1
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BASE}"] * 2
    assert "python:3.11-slim" in bases.without_digest("ARG BASE=python:3.11-slim\n")
    assert not bases.without_digest(f"ARG BASE=python:3.11-slim@sha256:{'0' * 64}\n")


def test_the_bill_of_the_lock_has_every_package_with_hashes_and_a_permissive_licence() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pinned = [line.partition("==")[0] for line in lock.splitlines() if line[:1].isalnum()]
    components = json.loads(sbom.document(lock, version="1.2.3", epoch=1))["components"]
    assert [each["name"] for each in components] == pinned
    assert all(each["externalReferences"][0]["hashes"] for each in components)
    for each in components:
        # Only what no system of ours installs has no licence here.
        elsewhere = "sys_platform ==" in each.get("properties", [{"value": ""}])[0]["value"]
        assert elsewhere or PERMISSIVE.search(json.dumps(each["licenses"])), each


def test_a_release_is_the_same_bytes_again_and_says_what_it_was_made_of(tmp_path: Path) -> None:
    (tmp_path / "duepoint-1.2.3-py3-none-any.whl").write_bytes(b"wheel")
    url, found = "https://github.com/example/duepoint.git", []
    for epoch in (1_700_000_000, 1_700_000_000):
        archive = krew.write(tmp_path, ROOT, version="1.2.3", repository_url=url, epoch=epoch)
        archives.normalised(archive, epoch=epoch)
        found.append(archive.read_bytes())
    assert found[0] == found[1]
    (platform,) = yaml.safe_load((tmp_path / krew.MANIFEST).read_text())["spec"]["platforms"]
    assert platform["uri"].startswith("https://")
    assert platform["uri"].endswith(f"/{archive.name}")
    assert (
        platform["sha256"]
        == building.sums(tmp_path)[archive.name]
        == hashlib.sha256(found[0]).hexdigest()
    )
    said = json.loads(
        provenance.statement(
            files={"a": "1" * 64},
            locks={"a.lock": "2" * 64},
            commit="c" * 40,
            repository="",
            parameters={},
            builder="https://builder.example/",
        )
    )
    assert said["subject"] == [{"name": "a", "digest": {"sha256": "1" * 64}}]
    (commit, *_) = said["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert commit["digest"] == {"gitCommit": "c" * 40}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_has_few_rights_and_runs_no_text_that_others_choose(name: str) -> None:
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for step in (step for job in workflow["jobs"].values() for step in job["steps"]):
        assert "${{" not in step.get("run", ""), step
        # A tag can be moved to other code, which would run with the rights of the job.
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}"))
        for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


def test_nothing_is_published_before_the_older_api_servers_were_tried() -> None:
    jobs = WORKFLOWS["release"]["jobs"]
    _, *older = binaries.KUBERNETES_VERSIONS
    assert sorted(jobs["api-servers"]["strategy"]["matrix"]["kubernetes"]) == sorted(older)
    assert jobs["build"]["needs"] == "api-servers"
    assert jobs["pypi"]["needs"] == "build"


def test_versions_that_the_page_of_support_names_are_those_that_are_tried() -> None:
    page = (ROOT / "docs/reference/support.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE))
    chart = yaml.safe_load((ROOT / "charts/duepoint/Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={rows['Kubernetes'].split()[0]}.0-0"
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    tried = rows["Python, for the command and the client"].split(", ")
    assert required == f">={tried[0]}"
    assert (
        f"PYTHONS ?= {' '.join(f'python{each}' for each in tried)}\n"
        in (ROOT / "Makefile").read_text()
    )


def test_what_is_fetched_is_the_version_that_would_be_built() -> None:
    for key, platforms in json.loads(releases.PINS.read_text()).items():
        module, _, version = key.partition(" ")
        recipe = next(one for one in binaries.RECIPES if one.module == module)
        assert version == recipe.version
        for programs in platforms.values():
            assert set(programs) == set(recipe.commands)
            for pin in (releases.Pin(**one) for one in programs.values()):
                algorithm, digits = pin.checksum
                assert pin.url.startswith("https://")
                assert len(bytes.fromhex(digits)) == hashlib.new(algorithm).digest_size


@pytest.mark.parametrize("pinned", [b"program", b"another"])
def test_only_the_pinned_bytes_are_kept(tmp_path: Path, monkeypatch, pinned: bytes) -> None:
    @contextlib.contextmanager
    def opened(_url: str):
        yield iter([b"program"])

    monkeypatch.setattr(releases, "opened", opened)
    pins = {"one": releases.Pin("https://x.example/one", sha256=hashlib.sha256(pinned).hexdigest())}
    is_kept = releases.fetched_into(tmp_path, ["one"], pins, {}, seconds=60)
    assert is_kept == (pinned == b"program")
    assert len(list(tmp_path.iterdir())) == is_kept
