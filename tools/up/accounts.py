"""Tokens and kubeconfigs of the ServiceAccounts the processes log in with.

A kubeconfig names a token file; the file is rewritten before its token expires, as a kubelet does
with projected tokens, and the processes read it again. `python -m tools.up.accounts` is the small
process that keeps doing so, also when `make up` has returned (DETACH=1).
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import json
import sys
import time
from pathlib import Path

from tools.devcluster import credentials
from tools.devcluster.errors import DevClusterError
from tools.up.installation import NAMESPACE
from tools.up.kubectl import Kubectl

TOKEN_SECONDS = 3600
RENEW_SECONDS = TOKEN_SECONDS // 2
RETRY_SECONDS = 30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where the API server is and how to know that it is the right one."""

    url: str
    ca_file: Path


def server_of(kubectl: Kubectl, folder: Path) -> Server:
    """The server of the current context; its authority is written into `folder`."""
    cluster = kubectl.json("config", "view", "--minify", "--raw", "--flatten")["clusters"][0]
    settings = cluster["cluster"]
    encoded = settings.get("certificate-authority-data")
    if not encoded:
        raise DevClusterError(
            f"the kubeconfig names no certificate authority for {settings['server']}; "
            "`make up` needs one for the kubeconfigs of operator and worker"
        )
    path = folder / "ca.crt"
    path.write_bytes(base64.b64decode(encoded))
    return Server(url=settings["server"], ca_file=path)


def token_file(folder: Path, account: str) -> Path:
    return folder / f"{account}.token"


def write_kubeconfig(folder: Path, server: Server, account: str) -> Path:
    """A kubeconfig that logs in as `account` with the token in its file."""
    config = json.loads(credentials.kubeconfig(server.url, server.ca_file, "", NAMESPACE))
    config["users"][0]["user"] = {"tokenFile": str(token_file(folder, account))}
    path = folder / f"{account}.kubeconfig"
    credentials.private(path, json.dumps(config, indent=2) + "\n")
    return path


def renew(kubectl: Kubectl, folder: Path, account: str) -> None:
    """Replace the token of `account` in one step."""
    wish = ["create", "token", account, f"--namespace={NAMESPACE}", f"--duration={TOKEN_SECONDS}s"]
    credentials.private(token_file(folder, account), kubectl.run(*wish).strip())


def keep(kubectl: Kubectl, folder: Path, names: list[str]) -> None:
    """Renew for ever; a server that is away is asked again soon."""
    delay = RENEW_SECONDS
    while True:
        time.sleep(delay)
        try:
            for name in names:
                renew(kubectl, folder, name)
        except DevClusterError as error:
            print(f"tokens not renewed, next attempt in {RETRY_SECONDS} s: {error}", flush=True)
            delay = RETRY_SECONDS
        else:
            print("tokens renewed", flush=True)
            delay = RENEW_SECONDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.up.accounts", description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("accounts", nargs="+")
    options = parser.parse_args()
    keep(Kubectl(options.kubeconfig), options.folder, options.accounts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
