"""Where logins come from."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from duepoint import errors
from duepoint.kube import credentials


def a_kubeconfig(
    tmp_path: Path, *, as_yaml: bool = False, cluster: Any = None, **user: Any
) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [
            {"name": "c", "cluster": {"server": "http://127.0.0.1:1/", **(cluster or {})}}
        ],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "anonymous", "context": {"cluster": "c"}},
        ],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(document) if as_yaml else json.dumps(document))
    return path


async def test_a_token_file_is_relative_to_the_kubeconfig_and_read_again_each_minute(
    tmp_path: Path,
):
    now = 0.0
    (tmp_path / "token").write_text("one")
    login = credentials.Login(server="http://127.0.0.1:1")
    access = credentials.of_token_file(login, tmp_path / "token", monotonic=lambda: now)
    named = credentials.of_kubeconfig(a_kubeconfig(tmp_path, tokenFile="token"))
    assert (await named.login()).token == "one"
    (tmp_path / "token").write_text("two")
    now = 59.0
    assert (await access.login()).token == "one"
    now = 61.0
    assert (await access.login()).token == "two"
    assert not await access.renew()


async def test_a_token_file_in_the_middle_of_its_rotation_keeps_the_old_token(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("one")
    access = credentials.of_token_file(credentials.Login(server="http://127.0.0.1:1"), token)
    token.unlink()
    assert not await access.renew()
    assert (await access.login()).token == "one"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2]",
        "{not yaml: [",
        '{"kind": "Config"}',
        '{"current-context": "x", "contexts": null}',
        '{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "y"}}]}',
    ],
)
def test_a_kubeconfig_that_leads_nowhere_is_a_wrong_setting_in_one_line(tmp_path: Path, text: str):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(errors.InvalidSetting) as refused:
        credentials.of_kubeconfig(path)
    assert refused.value.name == "KUBECONFIG"


@pytest.mark.parametrize(
    "cluster",
    [
        {"server": "ftp://a"},
        {"server": "https://a", "certificate-authority-data": "?"},
        {"server": "https://a", "certificate-authority": "none"},
    ],
    ids=["no http", "data that are no base64", "a file that is not there"],
)
def test_a_cluster_that_cannot_be_trusted_is_a_wrong_setting(tmp_path: Path, cluster: Any):
    with pytest.raises(errors.InvalidSetting):
        credentials.of_kubeconfig(a_kubeconfig(tmp_path, cluster=cluster))


@pytest.mark.parametrize("user", [{"username": "a", "password": "b"}, {"token": "t", "as": "root"}])
def test_what_would_make_us_somebody_else_is_refused(tmp_path: Path, user: Any):
    with pytest.raises(errors.InvalidSetting, match="not supported"):
        credentials.of_kubeconfig(a_kubeconfig(tmp_path, **user))


def test_no_api_server_at_all_is_a_wrong_setting(tmp_path: Path):
    with pytest.raises(errors.InvalidSetting, match="no file"):
        credentials.found(None, None, {"KUBECONFIG": str(tmp_path / "none")})


async def test_several_files_count_as_one_and_each_keeps_its_own_paths(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (second / "token").write_text("of the second")
    here = a_kubeconfig(first, token="of the first")
    there = second / "config"
    there.write_text(
        json.dumps(
            {
                "current-context": "there",
                "contexts": [{"name": "there", "context": {"cluster": "c", "user": "v"}}],
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:2"}}],
                "users": [{"name": "v", "user": {"tokenFile": "token"}}],
            }
        )
    )
    environment = {"KUBECONFIG": os.pathsep.join(map(str, (here, tmp_path / "none", there)))}
    current = await credentials.found(None, None, environment).login()
    assert current.token == "of the first"
    named = await credentials.found(None, "there", environment).login()
    assert (named.token, named.server) == ("of the second", "http://127.0.0.1:1")


async def test_in_a_pod_a_kubeconfig_comes_before_the_pods_own_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own = credentials.Credentials(credentials.Login(server="http://own"))
    monkeypatch.setattr(credentials, "in_cluster", lambda _: own)
    path = a_kubeconfig(tmp_path, token="abc")
    named = await credentials.found(None, None, {"KUBECONFIG": str(path)}).login()
    assert named.server == "http://127.0.0.1:1"
    assert credentials.found(None, None, {"KUBECONFIG": str(tmp_path / "none")}) is own


@pytest.mark.parametrize(
    ("context", "hint"),
    [("anonymous-2", 'did you mean "anonymous"?'), ("x", "write one of here, anonymous")],
)
def test_an_unknown_context_is_named_with_those_there_are(tmp_path: Path, context: str, hint: str):
    with pytest.raises(errors.InvalidSetting) as refused:
        credentials.of_kubeconfig(a_kubeconfig(tmp_path, token="t"), context)
    assert refused.value.name == "--context"
    assert str(refused.value).endswith(hint)


async def test_a_plugin_is_asked_through_the_official_package_and_again_after_a_401(
    tmp_path: Path,
):
    plugin = tmp_path / "plugin"
    status = '{"token": "from-plugin-%s"}'
    plugin.write_text(
        "#!/bin/sh\n"
        f"echo x >> {tmp_path}/asked\n"
        f"n=$(wc -l < {tmp_path}/asked | tr -d ' ')\n"
        'printf \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        f'"status":{status}}}\' "$n"\n'
    )
    plugin.chmod(0o700)
    exec_ = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "interactiveMode": "Never",
    }
    access = credentials.of_kubeconfig(a_kubeconfig(tmp_path, exec=exec_))
    assert (await access.login()).token == "from-plugin-1"
    assert await access.renew()
    assert (await access.login()).token == "from-plugin-2"


async def test_a_plugin_without_the_official_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    path = a_kubeconfig(tmp_path, exec={"command": "true"})
    with pytest.raises(errors.InvalidSetting, match=r"pip install 'duepoint\[login\]'"):
        await credentials.of_kubeconfig(path).login()


def test_secrets_are_not_in_the_text_of_a_login():
    assert "secret" not in repr(credentials.Login(server="http://a", token="secret"))
