"""The credentials of the development cluster: certificates, bearer tokens, kubeconfigs.

Everything is made anew at each start. The administrator's token is exempt from RBAC
(`system:masters`); the scheduler has the rights that Kubernetes gives it. The API server issues
ServiceAccount tokens; this module only writes their kubeconfig.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from tools.devcluster import keymaterial
from tools.devcluster.state import State

ADMIN = "admin"
USERS: Mapping[str, tuple[str, str]] = {
    # file name: (user, groups); the controller manager needs the rights of all its controllers
    ADMIN: ("duepoint-admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "kwok": ("kwok", "system:masters"),
    "node": ("duepoint-node", "system:masters"),  # of `tools.realnode`
}


def write(state: State, server: str) -> None:
    """Write all keys of one start to `state.credentials`, and the administrator's kubeconfig."""
    keymaterial.write(state.credentials)
    lines = []
    for file_name, (user, groups) in USERS.items():
        token = secrets.token_urlsafe(24)
        lines.append(f'{token},{user},{user},"{groups}"' if groups else f"{token},{user},{user}")
        private(state.credentials / f"{file_name}.token", token)
        private(kubeconfig_path(state, file_name), kubeconfig(server, authority(state), token))
    private(state.credentials / "tokens.csv", "\n".join(lines) + "\n")


def authority(state: State) -> Path:
    return state.credentials / "ca.crt"


def admin_token(state: State) -> str:
    return (state.credentials / f"{ADMIN}.token").read_text()


def kubeconfig_path(state: State, user: str) -> Path:
    return state.kubeconfig if user == ADMIN else state.credentials / f"{user}.kubeconfig"


def kubeconfig(server: str, ca_file: Path, token: str, namespace: str = "default") -> str:
    """Return a kubeconfig with one context, `duepoint`, as JSON, which YAML readers accept."""
    context = {"cluster": "duepoint", "user": "duepoint", "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "duepoint",
        "clusters": [
            {
                "name": "duepoint",
                "cluster": {"server": server, "certificate-authority": str(ca_file)},
            }
        ],
        "users": [{"name": "duepoint", "user": {"token": token}}],
        "contexts": [{"name": "duepoint", "context": context}],
    }
    return json.dumps(config, indent=2) + "\n"


def private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, replacing an older one in one step."""
    fresh = path.with_name(path.name + ".new")
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)
