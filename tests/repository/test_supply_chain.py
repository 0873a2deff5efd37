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

from tools.devcluster import releases
from tools.release import sbom

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
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
    assert len(installs) == 4
    for install in installs:
        assert "--require-hashes" in install or "--no-deps dist/" in install


def test_the_bill_of_the_lock_has_every_package_with_hashes_and_a_permissive_licence() -> None:
    lock = sbom.exported(ROOT, "cli")
    pinned = {line.partition("==")[0] for line in lock.splitlines() if line[:1].isalnum()}
    components = sbom.document(ROOT, "cli", version="1.2.3", epoch=1)["components"]
    assert {each["name"] for each in components} == pinned
    assert all(each["externalReferences"][0]["hashes"] for each in components)
    for each in components:
        # Only what no system of ours installs has no licence here.
        elsewhere = "sys_platform ==" in each.get("properties", [{"value": ""}])[0]["value"]
        assert elsewhere or PERMISSIVE.search(json.dumps(each["licenses"])), each


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
