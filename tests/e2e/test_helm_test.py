"""`helm test`: the Pod's own script, with the Pod's own rights, beside operators and workers."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.support import stack as stacks


def objects(stack: stacks.Stack, **values: Any) -> list[dict[str, Any]]:
    given = {
        "crds": {"enabled": False},
        "redis": {"url": "redis://elsewhere:6379/0"},
        "blobKey": {"existingSecret": "not-rendered"},
        "watchNamespaces": [stack.namespace],
        **values,
    }
    chart = str(stacks.ROOT / "charts" / "duepoint")
    done = subprocess.run(
        [stacks.helm(), "template", "duepoint", chart, "--namespace", stack.system,
         "--kube-version", "v1.36.0", "--values", "-",
         "--show-only", "templates/tests/selftest.yaml"],
        input=yaml.safe_dump(given), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [one for one in yaml.safe_load_all(done.stdout) if one]


async def run(stack: stacks.Stack, folder: Path, **values: Any) -> subprocess.CompletedProcess[str]:
    """What the Pod would do, as a process here."""
    pod: dict[str, Any] = {}
    admin = stack.plane.admin()
    for thing in objects(stack, **values):
        if thing["kind"] == "Pod":
            pod = thing
            continue
        metadata = thing["metadata"]
        path = stacks.PATHS[thing["kind"]].format(ns=metadata["namespace"], name=metadata["name"])
        admin.apply(path, thing)
    [container] = pod["spec"]["containers"]
    assert container["command"] == ["python", "-c"]
    account = pod["spec"]["serviceAccountName"]
    login = yaml.safe_load(
        stack.plane.service_account_kubeconfig(stack.system, account, folder).read_text()
    )
    token = folder / "token"
    token.write_text(login["users"][0]["user"]["token"])
    cluster = login["clusters"][0]["cluster"]
    environment = {one["name"]: one["value"] for one in container["env"]} | {
        "TEST_SERVER": cluster["server"],
        "TEST_TOKEN_FILE": str(token),
        "TEST_CA_FILE": str(authority(cluster, folder)),
        "TEST_SECONDS": "20",
    }
    return await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", *container["args"]],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def authority(cluster: dict[str, str], folder: Path) -> Path:
    if "certificate-authority" in cluster:
        return Path(cluster["certificate-authority"])
    path = folder / "ca.crt"
    path.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    return path


async def test_a_sound_installation_passes_and_nothing_is_left(
    stack: stacks.Stack, tmp_path: Path
) -> None:
    await stack.running()
    done = await run(stack, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "a Schedule is accepted, armed, and fired once\n"
    await stacks.eventually(lambda: _is_empty(stack), "the Schedule is gone")


async def test_without_an_operator_it_fails_and_says_that_none_has_looked(
    stack: stacks.Stack, tmp_path: Path
) -> None:
    done = await run(stack, tmp_path)
    assert done.returncode == 1
    assert "the Schedule is not Ready" in done.stderr
    assert "Traceback" not in done.stderr
    await stacks.eventually(lambda: _is_empty(stack), "the Schedule is gone")


async def _is_empty(stack: stacks.Stack) -> bool:
    body = await stack.api.request("GET", stacks.SCHEDULES.format(ns=stack.namespace))
    return b'"items":[]' in body
