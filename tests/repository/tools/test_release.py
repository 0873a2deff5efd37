"""Parts of a release that need no other program."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile

import pytest

from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import REPOSITORY
from tools.release import archives, bases, building, images, provenance, sbom, versions

EPOCH = 1_790_000_000
DIGEST = "sha256:" + "0" * 64
LOCK = """\
anyio==4.16.0 ; sys_platform != 'emscripten' \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
    # via httpx2
click==8.5.1 \\
    --hash=sha256:{b}
    # via
    #   duepoint (pyproject.toml)
    #   httpx2
httpx2==2.16.2 \\
    --hash=sha256:{a}
    # via duepoint (pyproject.toml)
""".format(a="a" * 64, b="b" * 64)


def packed(path, names, *, mode, mtime):
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            source = path.with_name("content")
            source.write_text(name)
            member = tar.gettarinfo(source, name)
            member.mode, member.mtime, member.uname = mode, mtime, "somebody"
            with source.open("rb") as file:
                tar.addfile(member, file)


def test_archives_of_equal_files_are_equal_bytes(tmp_path):
    packed(tmp_path / "one.tgz", ["a", "b"], mode=0o600, mtime=1_000.25)
    packed(tmp_path / "two.tgz", ["b", "a"], mode=0o664, mtime=2_000.5)
    for name in ("one.tgz", "two.tgz"):
        archives.normalised(tmp_path / name, epoch=EPOCH)

    assert (tmp_path / "one.tgz").read_bytes() == (tmp_path / "two.tgz").read_bytes()
    with tarfile.open(tmp_path / "one.tgz") as tar:
        seen = [(each.name, each.mode, each.mtime, each.uname) for each in tar.getmembers()]
        content = tar.extractfile("b")
        assert content is not None
        assert content.read() == b"b"
    assert seen == [("a", 0o644, EPOCH, ""), ("b", 0o644, EPOCH, "")]
    with gzip.open(tmp_path / "one.tgz") as zipped:
        zipped.read()
        assert zipped.mtime == EPOCH


def test_a_program_stays_a_program(tmp_path):
    packed(tmp_path / "one.tgz", ["run"], mode=0o700, mtime=0)
    archives.normalised(tmp_path / "one.tgz", epoch=EPOCH)

    with tarfile.open(tmp_path / "one.tgz") as tar:
        assert tar.getmember("run").mode == 0o755


def test_package_and_chart_have_one_version():
    assert versions.differing() == []
    assert versions.VERSION.fullmatch(versions.version())


def test_a_new_version_stands_everywhere(tmp_path):
    for path in (versions.SOURCE, versions.CHART):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text((REPOSITORY / path).read_text())
    versions.write("12.0.3", tmp_path)

    assert versions.version(tmp_path) == "12.0.3"
    assert versions.differing(tmp_path) == []
    (tmp_path / versions.SOURCE).write_text('__version__ = "12.0.4"\n')
    assert versions.differing(tmp_path) == [f"{versions.CHART}: 12.0.3"] * 2


def test_a_lock_is_read_with_hashes_markers_and_who_needs_what():
    found = {each.name: each for each in sbom.packages(LOCK)}

    assert list(found) == ["anyio", "click", "httpx2"]
    assert found["anyio"].version == "4.16.0"
    assert found["anyio"].marker == "sys_platform != 'emscripten'"
    assert found["anyio"].hashes == ["a" * 64, "b" * 64]
    assert found["click"].needed_by == ["duepoint", "httpx2"]
    assert found["httpx2"].marker == ""


def test_the_bill_names_every_package_of_the_lock_once_and_how_they_hang_together():
    text = sbom.document(LOCK, version="1.2.3", epoch=EPOCH)
    bill = json.loads(text)

    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/duepoint@1.2.3"
    needs = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert needs["pkg:pypi/duepoint@1.2.3"] == ["pkg:pypi/click@8.5.1", "pkg:pypi/httpx2@2.16.2"]
    assert needs["pkg:pypi/httpx2@2.16.2"] == ["pkg:pypi/anyio@4.16.0", "pkg:pypi/click@8.5.1"]
    assert text == sbom.document(LOCK, version="1.2.3", epoch=EPOCH)


def test_the_bill_of_the_real_lock_has_every_pinned_line_and_its_licence():
    lock = (REPOSITORY / "requirements.lock").read_text()
    pinned = [line.partition("==")[0] for line in lock.splitlines() if line[:1].isalnum()]
    bill = json.loads(sbom.document(lock, version="1.2.3", epoch=EPOCH))

    assert [each["name"] for each in bill["components"]] == pinned
    assert all(each["externalReferences"][0]["hashes"] for each in bill["components"])
    unknown = {each["name"] for each in bill["components"] if "licenses" not in each}
    # Only what no system of ours installs has no licence here.
    elsewhere = {
        each["name"]
        for each in bill["components"]
        if "sys_platform ==" in each.get("properties", [{"value": ""}])[0]["value"]
    }
    assert unknown <= elsewhere


def test_provenance_names_files_commit_and_locks():
    text = provenance.statement(
        files={"install.yaml": "1" * 64}, locks={"a.lock": "2" * 64},
        commit="c" * 40, repository="", parameters={"version": "1.2.3"}, builder="https://builder.example/",
    )  # fmt: skip
    said = json.loads(text)

    assert said["predicateType"] == "https://slsa.dev/provenance/v1"
    assert said["subject"] == [{"name": "install.yaml", "digest": {"sha256": "1" * 64}}]
    definition = said["predicate"]["buildDefinition"]
    assert definition["resolvedDependencies"][0]["digest"] == {"gitCommit": "c" * 40}
    assert said["predicate"]["runDetails"]["builder"]["id"] == "https://builder.example/"


def test_the_dockerfile_has_one_base_that_every_stage_uses():
    text = (REPOSITORY / "Dockerfile").read_text()

    assert len(bases.bases(text)) == 1
    stages = [line for line in text.splitlines() if line.startswith("FROM ")]
    assert [line.split()[1] for line in stages] == ["${BASE}"] * 2


@pytest.mark.parametrize("reference", ["python:3.11-slim", "python:3.11-slim@sha256:0", "a/b@x"])
def test_a_base_without_a_whole_digest_is_named(reference):
    assert bases.without_digest(f"ARG BASE={reference}\n") == [reference]


def test_a_digest_that_is_looked_up_stands_beside_the_tag_and_replaces_an_older(monkeypatch):
    monkeypatch.setattr(bases, "digest_of", lambda tag: {"python:3.11-slim": DIGEST}[tag])
    fresh = bases.pinned("ARG BASE=python:3.11-slim\nFROM ${BASE}\n")

    assert fresh == f"ARG BASE=python:3.11-slim@{DIGEST}\nFROM ${{BASE}}\n"
    assert bases.without_digest(fresh) == []
    assert bases.pinned(fresh.replace("0" * 64, "1" * 64)) == fresh


def test_without_an_engine_no_digest_is_made_up(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DevClusterError, match="cannot be asked for"):
        bases.digest_of("python:3.11-slim")


def test_without_engine_and_key_both_steps_say_so_and_what_was_asked_for_is_refused(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    options = {"image": "duepoint:1", "folder": tmp_path, "epoch": EPOCH}

    assert "left out" in images.build(tmp_path, push=False, **options)[1]
    assert "left out" in images.sign([], key="", image="")
    with pytest.raises(DevClusterError, match="PUSH needs a container engine"):
        images.build(tmp_path, push=True, **options)
    with pytest.raises(DevClusterError, match="no cosign"):
        images.sign([], key="cosign.key", image="")


def test_a_folder_with_other_files_is_not_emptied(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    wanted = building.Wanted(folder=tmp_path)

    with pytest.raises(DevClusterError, match="files that are no release"):
        list(building.release(wanted, REPOSITORY))
    assert (tmp_path / "thesis.tex").read_text() == "years"


def test_checksums_are_of_the_files(tmp_path):
    (tmp_path / "b").write_bytes(b"2")
    (tmp_path / "a").write_bytes(b"1")

    assert building.sums(tmp_path) == {
        "a": hashlib.sha256(b"1").hexdigest(),
        "b": hashlib.sha256(b"2").hexdigest(),
    }


def engine(folder, script):
    """A container engine that answers `docker info` and then does what a script says."""
    program = folder / "docker"
    program.write_text(f'#!/bin/sh\n[ "$1" = info ] && exit 0\n{script}\n')
    program.chmod(0o755)


def test_an_engine_that_cannot_build_for_both_leaves_the_image_out_unless_it_is_pushed(
    monkeypatch, tmp_path
):
    engine(tmp_path, "echo 'Multi-platform build is not supported' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    options = {"image": "duepoint:1", "folder": tmp_path, "epoch": EPOCH}

    digest, said = images.build(tmp_path, push=False, **options)

    assert digest == ""
    assert "left out" in said
    assert "Multi-platform build is not supported" in said
    with pytest.raises(DevClusterError, match="Multi-platform"):
        images.build(tmp_path, push=True, **options)


def test_the_digest_of_a_pushed_image_is_known_and_the_request_names_both_architectures(
    monkeypatch, tmp_path
):
    engine(
        tmp_path,
        f"""echo "$@" > {tmp_path}/asked
for each; do case "$each" in --metadata-file=*) file="${{each#*=}}";; esac; done
echo '{{"containerimage.digest": "{DIGEST}"}}' > "$file" """,
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    digest, _ = images.build(tmp_path, image="r/d:1", folder=tmp_path, push=True, epoch=EPOCH)

    assert digest == DIGEST
    asked = (tmp_path / "asked").read_text().split()
    assert {"--platform=linux/amd64,linux/arm64", "--tag=r/d:1", "--push", "--sbom=true"} <= set(
        asked
    )
    assert not (tmp_path / "image.json").exists()
