"""The command line of the real node: check, build, up, run, exec.

`check` names what this machine lacks for a node. `build` builds the parts of a node; the other
commands build missing parts, too. `up` starts the node and installs the chart and the examples
(`make down` ends them), or updates the image and the chart of a running node; with `--cluster
current` it installs into the cluster of the current context instead. `run -- COMMAND` runs a node
for the length of one command, and installs nothing. `exec -- COMMAND` runs a command in the
namespaces of the node, such as `nft list ruleset`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import sys
import time
from collections.abc import Callable

from tools.devcluster import binaries, cluster, external, progress, session
from tools.devcluster import state as states
from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import CURRENT, REAL, Record, State
from tools.realnode import images, installation, machine, requirements, servers
from tools.up.kubectl import Kubectl

BEGAN = time.monotonic()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.realnode", description=__doc__)
    parser.add_argument("command", choices=["check", "build", "up", "run", "exec"])
    parser.add_argument("--cluster", choices=[REAL, CURRENT], default=REAL)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    options = parser.parse_args(arguments)
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    state = states.default()
    bring = node if options.cluster == REAL else current
    commands: dict[str, Callable[[], int]] = {
        "check": lambda: check(options.cluster),
        "build": build,
        "up": lambda: up(bring(state)),
        "run": lambda: session.run(state.folder, words, ["helm"], bring),
        "exec": lambda: os.execvp("nsenter", [*machine.enter(_record(state)), *words]),
    }
    try:
        return commands[options.command]()
    except DevClusterError as error:
        progress.say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


def check(kind: str) -> int:
    fault = requirements.missing() if kind == REAL else ""
    if fault:
        progress.say(f"No real node here: {fault}. {requirements.ELSEWHERE}")
    return 1 if fault else 0


def build() -> int:
    prepare()
    return 0


def up(record: Record) -> int:
    progress.say("Installing the chart")
    installation.install(record)
    number = installation.apply_examples(Kubectl(record.kubeconfig))
    progress.say(
        f"Duepoint runs in {installation.NAMESPACE}, {number} objects of examples/ in default; "
        f"{progress.duration(time.monotonic() - BEGAN)} in all."
    )
    if record.kind == REAL:
        progress.say('Use it:  eval "$(make env)"      stop it:  make down')
    return 0


def node(state: State) -> Record:
    """Return a node with DNS: the running one, updated to the present image, or a new one."""
    parts = prepare()
    with state.exclusive():
        record = state.read()
        if record is not None and record.kind == REAL and cluster.is_healthy(state, record):
            return load(state, record, parts)
        cluster.end(state)
        progress.say("Starting a node in namespaces of its own")
        record = machine.start(state, parts)
        installation.add_dns(Kubectl(record.kubeconfig))
    return record


def prepare() -> machine.Parts:
    """Build or fetch all parts of a node; the product's image is the last."""
    requirements.ensure()
    wanted = [*servers.CONTROL_PLANE, *servers.OWN, "coredns", "helm"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        building = pool.submit(binaries.ensure, wanted)
        fetching = pool.submit(requirements.runtime)
        product = images.product()
        programs = {**building.result(), **fetching.result()}
    archives = [*images.others(programs["coredns"]), product]
    paths = {name: str(path) for name, path in programs.items()}
    return machine.Parts(programs=paths, images=list(map(str, archives)))


def current(state: State) -> Record:
    """Return the cluster of the user's current context, with the image loaded."""
    record = external.up(state, "redis://in-the-cluster.invalid")
    context = Kubectl(record.kubeconfig).run("config", "current-context").strip()
    installation.bring_image(context)
    binaries.ensure(["helm"])
    return record


def load(state: State, record: Record, parts: machine.Parts) -> Record:
    """Import the product's image into the running node if it changed, and restart its Pods."""
    file = machine.parts_file(state)
    if machine.Parts.read(file).images[-1] != parts.images[-1]:
        machine.run_inside(record, parts.programs["ctr"], *servers.IMPORT, parts.images[-1])
        parts.write(file)
        target = ("deploy", f"--namespace={installation.NAMESPACE}")
        with contextlib.suppress(DevClusterError):  # the chart may not be there
            Kubectl(record.kubeconfig).run("rollout", "restart", *target)
    return record


def _record(state: State) -> Record:
    record = state.read()
    if record is None or record.kind != REAL or not record.complete:
        raise DevClusterError("no real node is running; start one with `make real`")
    return record


if __name__ == "__main__":
    sys.exit(main())
