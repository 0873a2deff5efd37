"""Official releases in place of builds: the pinned bytes, or a build."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import tarfile
import threading
import time
from pathlib import Path

import pytest

from tools.devcluster import binaries, pinning, releases

PROGRAM = b"#!/bin/sh\necho a release\n"
KWOK = "/github.com/kubernetes-sigs/kwok/releases/download/v0.8.0/kwok-linux-amd64"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Mirror:
    """Attributes:
    files: path -> content.
    pause: seconds before each burst of an answer's body.
    asked: paths, in order.
    bursts: how many were sent.
    """

    BURST = 10_000

    def __init__(self) -> None:
        self.bursts = 0
        self.files: dict[str, bytes] = {}
        self.pause = 0.0
        self.asked: list[str] = []
        self.url = ""


@pytest.fixture
def mirror():
    mirror = Mirror()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            mirror.asked.append(self.path)
            content = mirror.files.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("content-length", str(len(content or b"")))
            self.end_headers()
            with contextlib.suppress(OSError):
                for at in range(0, len(content or b""), mirror.BURST):
                    time.sleep(mirror.pause)
                    self.wfile.write(content[at : at + mirror.BURST])
                    mirror.bursts += 1

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    mirror.url = f"http://127.0.0.1:{server.server_port}"
    yield mirror
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def environment(tmp_path, mirror):
    return {"DUEPOINT_CACHE": str(tmp_path / "cache"), "DUEPOINT_RELEASES": mirror.url}


@pytest.fixture
def pins(tmp_path, monkeypatch):
    """Replace the recorded pins for this test."""

    def record(recorded: dict) -> Path:
        path = tmp_path / "releases.json"
        by_platform = {key: {releases.this_platform(): pins} for key, pins in recorded.items()}
        path.write_text(json.dumps(by_platform))
        usual = releases.pins_of
        monkeypatch.setattr(
            releases, "pins_of", lambda module, version: usual(module, version, path)
        )
        return path

    return record


def a_kwok_pin(content: bytes = PROGRAM) -> dict:
    url = f"https:/{KWOK}"
    return {"kwok v0.8.0": {"kwok": {"url": url, "sha256": sha256(content)}}}


def test_a_pinned_release_takes_the_place_of_a_build(environment, compiled, mirror, pins):
    pins(a_kwok_pin())
    mirror.files[KWOK] = PROGRAM

    found = binaries.ensure(["kwok"], environment)["kwok"]

    assert found.read_bytes() == PROGRAM
    assert found.stat().st_mode & 0o111 == 0o111
    assert binaries.ensure(["kwok"], environment)["kwok"] == found
    assert mirror.asked == [KWOK]
    assert compiled == []


def test_bytes_that_are_not_the_pinned_ones_are_built_instead(
    environment, compiled, mirror, pins, capsys
):
    pins(a_kwok_pin(b"what was pinned"))
    mirror.files[KWOK] = PROGRAM

    found = binaries.ensure(["kwok"], environment)["kwok"]

    assert found.read_text() == "built"
    assert sha256(PROGRAM) in capsys.readouterr().err


def test_what_the_network_does_not_have_is_built(environment, compiled, pins, capsys):
    pins(a_kwok_pin())

    assert binaries.ensure(["kwok"], environment)["kwok"].read_text() == "built"
    assert "404" in capsys.readouterr().err


def test_without_a_pin_nothing_is_asked_for(environment, compiled, mirror, pins):
    pins({})

    binaries.ensure(["etcd"], environment)

    assert (mirror.asked, compiled) == ([], ["etcd"])


def test_off_asks_for_nothing(environment, compiled, mirror, pins):
    pins(a_kwok_pin())

    binaries.ensure(["kwok"], {**environment, "DUEPOINT_RELEASES": "off"})

    assert (mirror.asked, compiled) == ([], ["kwok"])


def test_a_program_of_a_module_that_is_missing_costs_the_others_of_it(tmp_path, mirror):
    mirror.files["/example.com/one"] = PROGRAM
    known = {
        name: releases.Pin(f"https://example.com/{name}", sha256=sha256(PROGRAM))
        for name in ("one", "two")
    }
    chosen = {"DUEPOINT_RELEASES": mirror.url}

    assert not releases.fetched_into(tmp_path, ["one", "two"], known, chosen, seconds=20)
    assert list(tmp_path.iterdir()) == []


def test_a_release_that_comes_slower_than_a_build_is_given_up(tmp_path, mirror, capsys):
    mirror.files["/example.com/one"] = PROGRAM
    mirror.pause = 0.3
    known = {"one": releases.Pin("https://example.com/one", sha256=sha256(PROGRAM))}
    chosen = {"DUEPOINT_RELEASES": mirror.url}

    assert not releases.fetched_into(tmp_path, ["one"], known, chosen, seconds=0.1)
    assert "too slowly" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_release_that_would_come_slower_than_a_build_is_given_up_early(
    tmp_path, mirror, capsys, monkeypatch
):
    monkeypatch.setattr(releases, "RATE_KNOWN_SECONDS", 0.05)
    mirror.files["/example.com/one"] = bytes(100 * mirror.BURST)
    mirror.pause = 0.02
    known = {"one": releases.Pin("https://example.com/one", sha256=sha256(PROGRAM))}
    chosen = {"DUEPOINT_RELEASES": mirror.url}

    assert not releases.fetched_into(tmp_path, ["one"], known, chosen, seconds=1)
    assert "too slowly" in capsys.readouterr().err
    assert mirror.bursts < 90


def test_a_release_with_a_sha512_is_checked_against_that(tmp_path, mirror):
    mirror.files["/example.com/one"] = PROGRAM
    chosen = {"DUEPOINT_RELEASES": mirror.url}
    right = releases.Pin("https://example.com/one", sha512=hashlib.sha512(PROGRAM).hexdigest())
    wrong = releases.Pin("https://example.com/one", sha512=hashlib.sha512(b"other").hexdigest())

    assert not releases.fetched_into(tmp_path, ["one"], {"one": wrong}, chosen, seconds=20)
    assert releases.fetched_into(tmp_path, ["one"], {"one": right}, chosen, seconds=20)
    assert (tmp_path / "one").read_bytes() == PROGRAM


def an_archive(member: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        described = tarfile.TarInfo(member)
        described.size = len(content)
        archive.addfile(described, io.BytesIO(content))
    return packed.getvalue()


def test_a_program_is_taken_out_of_its_archive(tmp_path, mirror):
    archive = an_archive("etcd-v1/etcd", PROGRAM)
    mirror.files["/example.com/etcd.tar.gz"] = archive
    pin = releases.Pin(
        "https://example.com/etcd.tar.gz", member="etcd-v1/etcd", sha256=sha256(archive)
    )

    assert releases.fetched_into(
        tmp_path, ["etcd"], {"etcd": pin}, {"DUEPOINT_RELEASES": mirror.url}, seconds=20
    )
    assert [path.name for path in tmp_path.iterdir()] == ["etcd"]
    assert (tmp_path / "etcd").read_bytes() == PROGRAM


def test_an_archive_without_the_program_costs_a_build_only(tmp_path, mirror, capsys):
    archive = an_archive("etcd-v1/etcd", PROGRAM)
    mirror.files["/example.com/etcd.tar.gz"] = archive
    pin = releases.Pin("https://example.com/etcd.tar.gz", member="etcd", sha256=sha256(archive))

    assert not releases.fetched_into(
        tmp_path, ["etcd"], {"etcd": pin}, {"DUEPOINT_RELEASES": mirror.url}, seconds=20
    )
    assert "cannot be taken out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_maintainer_records_what_every_platform_has(
    tmp_path, mirror, compiled, pins, environment
):
    path = pins({})
    path.write_text("{}")
    for arch in ("amd64", "arm64"):
        version = next(one.version for one in binaries.RECIPES if one.module == "etcd")
        stem = f"etcd-{version}-linux-{arch}"
        archive = an_archive(f"{stem}/etcd", PROGRAM + arch.encode())
        mirror.files[f"/github.com/etcd-io/etcd/releases/download/{version}/{stem}.tar.gz"] = (
            archive
        )

    pinning.pin(["etcd"], environment, path)
    found = binaries.ensure(["etcd"], environment)["etcd"]

    assert found.read_bytes().startswith(PROGRAM)
    assert compiled == []
    assert len(json.loads(path.read_text())[f"etcd {version}"]) == 2


def test_a_release_that_cannot_be_fetched_is_not_recorded(tmp_path, environment, pins):
    path = pins({})
    before = path.read_text()

    with pytest.raises(releases.NotFetched, match="404"):
        pinning.pin(["kwok"], environment, path)
    assert path.read_text() == before


@pytest.mark.parametrize("key", json.loads(releases.PINS.read_text()))
def test_what_is_pinned_is_the_version_that_would_be_built(key):
    module, _, version = key.partition(" ")
    recipe = next(one for one in binaries.RECIPES if one.module == module)
    recorded = json.loads(releases.PINS.read_text())[key]

    assert version == recipe.version
    for platform, programs in recorded.items():
        assert set(programs) == set(recipe.commands)
        for pin in (releases.Pin(**one) for one in programs.values()):
            algorithm, digits = pin.checksum
            assert pin.url.startswith("https://")
            assert platform in pin.url.replace("linux/", "linux-")
            assert len(bytes.fromhex(digits)) == hashlib.new(algorithm).digest_size
            assert not (pin.sha256 and pin.sha512)


@pytest.mark.parametrize("platform", pinning.PLATFORMS)
def test_everything_that_a_cluster_needs_is_pinned(platform):
    recorded = json.loads(releases.PINS.read_text())
    names = [name for entry in recorded.values() for name in entry.get(platform, ())]
    assert set(binaries.CLUSTER) <= set(names)
