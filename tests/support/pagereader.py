"""A simulated reader of the pages, with a page's files, a shell, and a scene's installation.

Namespaces such as ``team-a`` or ``duepoint-system`` have other names in the tests' cluster, and
processes of the scene stand in for Pods; ``_adapted`` lists these differences.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from duepoint.targets.webhook import signing
from tests.e2e.test_jobs import template
from tests.support import pagecommands
from tests.support import stack as stacks
from tests.support.certificates import authority
from tests.support.pagecommands import PageBlock
from tests.support.pagescene import Scene
from tests.support.redisserver import free_port
from tests.support.waiting import LONGEST_SECONDS
from tools.devcluster import credentials

BIN = Path(sys.executable).parent
SYSTEM = "duepoint-system"
_SECRET = "whsec_bmV3IHNlY3JldCBuZXcgc2VjcmV0IDI0"
_CRONJOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "spec": {"schedule": "30 2 * * *", "timeZone": "Europe/Rome", "jobTemplate": template()},
}
#: The command that `make env` runs.
_ENVIRONMENT = f"{sys.executable} -m tools.devcluster env"
#: The part of redis-cli that the pages use, for a machine without it.
_REDIS_CLI = """
import sys
import redis
_, _, url, *words = sys.argv  # redis-cli -u URL ...
server = redis.Redis.from_url(url, decode_responses=True)
if words[0] == "--scan":
    print(*server.scan_iter(words[2]), sep="\\n")
elif words == ["MONITOR"]:
    with server.monitor() as monitor:
        print("OK", flush=True)
        for command in monitor.listen():
            print(command["command"], flush=True)
else:
    print(server.execute_command(*words))
"""
_BEFORE_A_NAMESPACE = r"(-n |--namespace[ =]|serviceaccount=|namespace: |/namespaces/|dp:stream:)"
#: With pipefail, a program that still writes to a finished ``head`` would die of SIGPIPE.
_PATIENT_HEAD = 'head() { command head "$@"; cat > /dev/null; }'
_ADDRESS = re.compile(r"redis://\S+")
#: Exit codes of a process that Ctrl-C ends.
_INTERRUPTED = (0, 130, -signal.SIGINT)
#: kubectl's signal handler exits with 1 unless the watch that it cancels ends sooner.
_KUBECTL_INTERRUPTED = (*_INTERRUPTED, 1)
_RULES = """\
groups: [{name: a, rules: [{alert: A, expr: kube_job_status_failed > 0}]}]
"""

#: The id of a dead letter on the pages.
A_LETTER = "1.17.1763771234567-0"


class Reader:
    """Runs commands of pages in the scene.

    Attributes:
        programs: a folder of the PATH, before those of this machine.
    """

    def __init__(self, scene: Scene, folder: Path) -> None:
        self._scene = scene
        self._folder = folder
        self._folders: dict[Path, Path] = {}
        plane = scene.stack.plane
        self._kubeconfig = folder / "kubeconfig"
        credentials.private(
            self._kubeconfig,
            credentials.kubeconfig(
                plane.server, plane.ca_file, plane.admin_token, scene.stack.namespace
            ),
        )
        self.programs = folder / "programs"
        self.programs.mkdir()
        (self.programs / "helm").symlink_to(stacks.helm())
        (self.programs / "redis-cli").write_text(f"#!{sys.executable}\n{_REDIS_CLI}")
        (self.programs / "redis-cli").chmod(0o755)
        self._load_address = f"127.0.0.1:{free_port()}"
        self._release = f"duepoint-{uuid.uuid4().hex[:6]}"
        self._releases_in = plane.create_namespace("pages-release")
        self.environment = {
            **os.environ,
            "PATH": f"{self.programs}:{BIN}:{os.environ['PATH']}",
            "KUBECONFIG": str(self._kubeconfig),
            "REDIS_URL": f"{scene.stack.redis.url.removesuffix('/0')}/1",
            "DUEPOINT_STATE": str(plane.folder),
            "DUEPOINT_REDIS_URL": scene.stack.redis.url,
            "DUEPOINT_API_URL": scene.stack.api_url,
            "DUEPOINT_API_TOKEN": scene.token,
            "API": scene.stack.api_url,
            "TOKEN": scene.token,
        }

    def end(self) -> None:
        """Delete the release's objects outside its namespace."""
        self._run("helm uninstall duepoint -n duepoint-system --ignore-not-found", self._folder)
        self._scene.stack.plane.discard_namespace(self._releases_in)

    # -- commands --------------------------------------------------------------------------------

    def run(self, command: str, folder: Path) -> str:
        """Return the standard output; a failed command raises an AssertionError with all output."""
        done = self._run(command, folder)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, command: str, folder: Path) -> str:
        """Run a command that must fail, and return its output."""
        done = self._run(command, folder)
        assert done.returncode != 0, f"{command}\n{done.stdout}"
        return done.stderr

    def run_until(
        self,
        text: str,
        command: str,
        folder: Path,
        beside: Sequence[str] = (),
    ) -> None:
        """Run a command that goes on until Ctrl-C, and send that once its output has this text.

        ``beside``: commands of another shell, run before that, at the Redis named in the output.
        """
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", f"exec {self._adapted(command)}"],
            cwd=folder, env=self.environment, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        guard = threading.Timer(LONGEST_SECONDS, process.kill)
        guard.start()
        try:
            assert process.stdout is not None
            said = ""
            for line in process.stdout:
                said += line
                if text in line:
                    if beside:
                        [address, *_] = _ADDRESS.findall(said)
                        self.run(_ADDRESS.sub(address, "\n".join(beside)), folder)
                    process.send_signal(signal.SIGINT)
                    break
            said += process.stdout.read()
            code = process.wait()
            is_kubectl = command.startswith("kubectl get ")
            codes = _KUBECTL_INTERRUPTED if is_kubectl else _INTERRUPTED
            assert code in codes, f"{command}: {code}\n{said}"
            assert text in said, f"{command}\n{said}"
        finally:
            guard.cancel()
            process.kill()
            process.wait()

    def wait_until(self, command: str, holds: Callable[[str], bool]) -> str:
        """Repeat a command until it succeeds and its output holds; return the output."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while True:
            done = self._run(command, self._folder)
            if done.returncode == 0 and holds(done.stdout):
                return done.stdout
            assert time.monotonic() < deadline, f"{command}\n{done.stdout}{done.stderr}"
            time.sleep(0.5)

    def _run(self, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{_PATIENT_HEAD}\n{self._adapted(command)}"],
            cwd=folder, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True, check=False, timeout=LONGEST_SECONDS,
        )  # fmt: skip

    # -- files -----------------------------------------------------------------------------------

    def is_new_to(self, page: Path) -> bool:
        """Whether no command of the page has been run."""
        return page not in self._folders

    def folder_of(self, block: PageBlock) -> Path:
        """Return the folder in which the reader of a page works, with its files."""
        if block.page not in self._folders:
            folder = self._folder / block.page.stem
            folder.mkdir()
            self._fill(folder, block.page)
            self._folders[block.page] = folder
        return self._folders[block.page]

    def _fill(self, folder: Path, page: Path) -> None:
        for name in ("charts", "crds", "examples", "deploy"):
            (folder / name).symlink_to(pagecommands.ROOT / name)
        shutil.copytree(pagecommands.ROOT / "gitops", folder / "gitops")
        of_argo = folder / "gitops" / "argocd-cm.yaml"
        of_argo.write_text(self._adapted(of_argo.read_text()))
        for name in ("sentinel-password", "operator-password", "worker-password", "password"):
            (folder / name).write_text("secret")
        _write_certificates(folder)
        _write_request(folder)
        rows = [{"id": f"row-{number}", "schedule": "0 9 * * MON"} for number in range(3)]
        (folder / "members.ndjson").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        cronjob = {**_CRONJOB, "metadata": {"name": "report"}}
        (folder / "cronjob.yaml").write_text(yaml.safe_dump(cronjob))
        cronjob = {**_CRONJOB, "metadata": {"name": "nightly"}}
        (folder / "cronjobs.yaml").write_text(yaml.safe_dump(cronjob))
        for name in ("schedules", "backup", "rules"):
            (folder / name).mkdir()
        (folder / "rules" / "jobs.yaml").write_text(_RULES)
        for body in _objects_of(page):
            text = self._adapted(yaml.safe_dump(body))
            (folder / f"{body['metadata']['name']}.yaml").write_text(text)
            (folder / "schedule.yaml").write_text(text)
        (folder / "ticks.yaml").write_text(yaml.safe_dump(_a_stream("ticks")))
        load = {**_a_set("probe"), "spec": {"webhook": {"url": f"http://{self._load_address}/"}}}
        (folder / "load.yaml").write_text(yaml.safe_dump(load))
        (folder / "customers.yaml").write_text(yaml.safe_dump(_a_set("customers")))
        for name in ("report", "nightly", "ticks"):
            for path in (folder / f"{name}.yaml", folder / "schedules" / f"{name}.yaml"):
                if not path.exists():
                    path.write_text(yaml.safe_dump(_a_schedule(name)))

    # -- differences -----------------------------------------------------------------------------

    def _adapted(self, text: str) -> str:
        """Replace the page's namespaces, addresses and ids with ours."""
        stack = self._scene.stack
        text = self._of_processes(text)
        if "helm " in text:
            text = self._of_the_release(text)
        if "kubectl create namespace" in text:
            text = text.replace(SYSTEM, self._scene.another_system())
        text = text.replace(SYSTEM, stack.system)
        shop = self._scene.namespaces["shop"]
        for name, own in {**self._scene.namespaces, "argocd": stack.namespace}.items():
            text = re.sub(rf"{_BEFORE_A_NAMESPACE}{name}\b", rf"\g<1>{own}", text)
        text = text.replace("=edit --", f"={stack.roles.name_of('duepoint-edit')} --")
        for address in ("https://localhost:8443", "http://127.0.0.1:8443"):
            text = text.replace(address, stack.api_url)
        text = text.replace("https://duepoint-api.example.com", stack.api_url)
        text = text.replace("redis://127.0.0.1:6379", stack.redis.url)
        text = text.replace("--receive 8089", f"--receive {free_port()}")
        text = text.replace("load probe", f"load probe --receive {self._load_address}")
        text = text.replace("--within 20s", "--within 2s")
        text = text.replace("127.0.0.1:8089", f"127.0.0.1:{stack.receiver_port}")
        text = text.replace("localhost:8080", f"127.0.0.1:{stack.receiver_port}")
        lease = f"--lease {stack.system}/duepoint-operator"
        text = text.replace("duepoint doctor", f"duepoint doctor {lease}")
        text = text.replace(".venv/bin/", "")
        alone = f"env DUEPOINT_WATCH_NAMESPACES={self._releases_in} duepoint"
        text = re.sub(r"^duepoint (operator|worker) ", rf"{alone} \1 ", text)
        text = text.replace("/backup/", "backup/").replace("/tmp/blob-key", "blob-key")
        text = text.replace("make env", f"cd {pagecommands.ROOT} && {_ENVIRONMENT}")
        reports = self._scene.namespaces["reports"]
        text = text.replace("get cronjobs -A", f"get cronjobs -n {reports}")
        text = text.replace("cronjob --all-namespaces", f"cronjob -n {reports}")
        text = text.replace("schedules,schedulesets -A", f"schedules,schedulesets -n {shop}")
        if A_LETTER in text:
            text = text.replace(A_LETTER, self._dead_letter())
        text = re.sub(r"--timeout[= ]\d+[smh]", f"--timeout={LONGEST_SECONDS:.0f}s", text)
        text = re.sub(r"--for \d+m", "--for 3s", text)
        # The command asks a reader at a terminal for confirmation.
        text = re.sub(r"(?m)(dlq (?:replay|purge) -.*)$", r"\1 --yes", text)
        today = f"{dt.datetime.now().astimezone():%F}"
        text = re.sub(r"reminders-\d{4}-\d\d-\d\d", f"reminders-{today}", text)
        run = "$(kubectl get srun -o name -n \\1 | head -1 | cut -d/ -f2)"
        text = re.sub(r"NAME -n (\S+)", f"{run} -n \\1", text)
        return re.sub(
            r"(backfill .*?)--from \S+ --to \S+((?!.*--dry-run).*)",
            r"\1--from 2026-11-01 --to 2026-11-03\2 --yes",
            text,
        )

    def _of_the_release(self, text: str) -> str:
        """Adapt Helm's commands to a release beside the scene's; the CRDs exist already."""
        text = text.replace(
            "helm upgrade ...", f"helm upgrade duepoint charts/duepoint -n {SYSTEM} --reuse-values"
        )
        text = re.sub(r"deploy/duepoint-(operator|worker)", rf"deploy/{self._release}-\1", text)
        text = re.sub(
            r"helm (install|upgrade) duepoint charts/duepoint",
            rf"helm \1 {self._release} charts/duepoint --set crds.enabled=false",
            text,
        )
        text = re.sub(r"helm (rollback|uninstall) duepoint", rf"helm \1 {self._release}", text)
        teams = (self._scene.namespaces[name] for name in ("team-a", "reports"))
        text = text.replace("{team-a,team-b}", f"{{{','.join(teams)}}}")
        return text.replace(SYSTEM, self._releases_in)

    def _dead_letter(self) -> str:
        """Return the id of a dead letter."""
        listed = self.wait_until("duepoint dlq list -o json -n team-a", bool)
        return str(json.loads(listed.splitlines()[0])["id"])

    def _of_processes(self, text: str) -> str:
        """Make commands for a Pod run here and ask the process itself."""
        processes = self._scene.processes
        text = re.sub(
            r"kubectl port-forward -n \S+ deploy/duepoint-(operator|worker) 8080 & "
            r"curl -s localhost:8080",
            lambda found: f"curl -s {processes[found[1]].http}",
            text,
        )
        text = re.sub(r"kubectl exec -n \S+ deploy/duepoint-worker -- (\\\n\s*)?", "", text)
        return text.replace("http://127.0.0.1:8080", processes["worker"].http)


def _write_certificates(folder: Path) -> None:
    signer = authority()
    client = signer.signs("a-client")
    for name in ("ca.pem", "ca.crt"):
        (folder / name).write_bytes(signer.pem)
    (folder / "client.crt").write_bytes(client.certificate)
    (folder / "client.key").write_bytes(client.key)


def _write_request(folder: Path) -> None:
    """Write a signed webhook as a receiver stores it, and its secret."""
    now = str(int(time.time()))
    body = b'{"type": "schedule.fired"}'
    signature = signing.header([signing.signer(_SECRET)], "msg_1", now, body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": now, "webhook-signature": signature}
    (folder / "secret.txt").write_text(_SECRET)
    head = "".join(f"{name}: {value}\n" for name, value in headers.items())
    (folder / "received.txt").write_bytes(f"{head}\n".encode() + body)


def _objects_of(page: Path) -> list[dict[str, Any]]:
    """Return the Schedules and ScheduleSets that a page shows, in its order."""
    shown = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    documents = [each for text in shown for each in yaml.safe_load_all(text)]
    kinds = ("Schedule", "ScheduleSet")
    return [each for each in documents if isinstance(each, dict) and each.get("kind") in kinds]


def _a_schedule(name: str) -> dict[str, Any]:
    """Return a Schedule of Jobs whose commands can run on this machine, too."""
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo done"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": name},
        "spec": {
            "schedule": "@every 6h" if name == "ticks" else "30 2 * * *",
            "jobTemplate": {"spec": {"template": {"spec": pod}}},
        },
    }


def _a_stream(name: str) -> dict[str, Any]:
    return {**_a_schedule(name), "spec": {"schedule": "@every 1s", "stream": {"name": name}}}


def _a_set(name: str) -> dict[str, Any]:
    spec = {"webhook": {"url": "https://a.example/"}}
    return {**_a_schedule(name), "kind": "ScheduleSet", "spec": spec}
