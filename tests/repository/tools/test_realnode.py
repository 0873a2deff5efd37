"""What a real node is made of, as far as it can be said without one."""

from __future__ import annotations

import re

import pytest

from tools.devcluster.state import REPOSITORY
from tools.realnode import images, installation, requirements


def test_the_image_is_built_anew_when_anything_changes_that_the_dockerfile_copies():
    sources = {str(path.relative_to(REPOSITORY)) for path in images.product_sources()}

    copied = [
        word
        for line in (REPOSITORY / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    assert "operator" in copied
    for name in copied:
        assert any(one == name or one.startswith(f"{name}/") for one in sources), name
    assert "Dockerfile" in sources
    assert not any("__pycache__" in one for one in sources)


def test_the_image_has_the_name_that_the_manifests_ask_for():
    base = (REPOSITORY / "deploy" / "kustomize" / "base" / "duepoint.yaml").read_text()

    assert f"image: {images.product_name().removeprefix('docker.io/library/')}" in base


def test_every_image_of_the_examples_is_there():
    names = {images.BUSYBOX.removeprefix("docker.io/library/")}
    for path in (REPOSITORY / "examples").rglob("*.yaml"):
        asked = re.findall(r"image: ([\w./:-]+)", path.read_text())
        assert set(asked) <= names, path


def test_without_root_it_says_what_to_do_instead(monkeypatch):
    monkeypatch.setattr(requirements.platform, "system", lambda: "Linux")
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 1000)

    with pytest.raises(requirements.DevClusterError, match=r"needs root.*CLUSTER=current"):
        requirements.ensure()


@pytest.mark.parametrize(
    ("image", "options"),
    [
        ("", ()),
        (
            "registry.example.com:5000/a/duepoint:dev",
            (
                "--set=image.repository=registry.example.com:5000/a/duepoint",
                "--set-string=image.tag=dev",
            ),
        ),
    ],
)
def test_an_image_of_a_registry_is_named_to_the_chart(monkeypatch, image, options):
    monkeypatch.setenv("IMAGE", image)

    assert installation.image_options() == options


def test_webhooks_of_the_examples_go_to_the_receiver_in_the_cluster():
    text = (REPOSITORY / "examples" / "02-webhook" / "schedule.yaml").read_text()

    assert "127.0.0.1" not in installation.for_pods(text)
    assert "service: {name: receiver, port: http, path: /hooks/first-webhook}" in (
        installation.for_pods(text)
    )
