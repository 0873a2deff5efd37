"""Run a development cluster: up, env, down, run, build, tool.

Run `python -m tools.devcluster COMMAND` from the root of the repository. Results go to standard
output, everything else to standard error. DUEPOINT_STATE chooses the cluster, DUEPOINT_CACHE the
folder for binaries, DUEPOINT_RELEASES a mirror of releases, DUEPOINT_KUBERNETES the version of the
control plane. KUBEBUILDER_ASSETS, REDIS_URL and KUBECONFIG are used as described in `binaries` and
`external`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable

from tools.devcluster import binaries, cluster, external, progress, session
from tools.devcluster import state as states
from tools.devcluster.errors import DevClusterError


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except DevClusterError as error:
        progress.say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="python -m tools.devcluster", description=__doc__)
    commands = whole.add_subparsers(required=True, metavar="COMMAND")
    start = commands.add_parser("up", help="start the cluster, or find it running")
    start.add_argument("--cluster", choices=["simulated", "current"], default="simulated")
    start.set_defaults(command=up)
    show = commands.add_parser("env", help="shell commands that point kubectl and duepoint at it")
    show.set_defaults(command=env)
    commands.add_parser("down", help="stop everything; data stay").set_defaults(command=down)
    once = commands.add_parser("run", help="a cluster for the length of one command")
    once.add_argument("--tool", action="append", default=[], help="a program to have ready too")
    once.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    once.set_defaults(command=run)
    ahead = commands.add_parser("build", help="build what a cluster needs, and start none")
    ahead.add_argument("--tool", action="append", default=[], help="a program to have ready too")
    ahead.set_defaults(command=build)
    tool = commands.add_parser("tool", help="print the path of a program, building it if needed")
    tool.add_argument("name")
    tool.set_defaults(command=path_of_tool)
    return whole


def up(options: argparse.Namespace) -> int:
    started = time.monotonic()
    state = states.default()
    redis_url = external.redis_url(state)
    if options.cluster == "current":
        record = external.up(state, redis_url)
    else:
        record = cluster.up(state, redis_url)
    describe(record)
    progress.say(f"Ready after {progress.duration(time.monotonic() - started)}.")
    return 0


def describe(record: states.Record) -> None:
    if record.kind == states.SIMULATED:
        version = binaries.KUBERNETES_VERSIONS[record.kubernetes]
        progress.say(
            f"Kubernetes {version} at {record.server}, one simulated node: "
            "Jobs finish, but NO CONTAINER RUNS."
        )
    else:
        progress.say(f"Kubernetes: the current context of {record.kubeconfig}; Pods are real.")
    progress.say(f"Redis: {record.redis_url}")
    progress.say('Use it:  eval "$(make env)"      stop it:  make down')


def env(_options: argparse.Namespace) -> int:
    """Print the settings, with those that ``duepoint queue`` and ``duepoint dlq`` read."""
    record = _record()
    shown = {**record.environment(), "DUEPOINT_REDIS_URL": record.redis_url}
    for name, value in shown.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def down(_options: argparse.Namespace) -> int:
    stopped = cluster.down(states.default())
    progress.say("Stopped." if stopped else "Nothing was running.")
    return 0


def run(options: argparse.Namespace) -> int:
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise DevClusterError("run needs a command: run -- COMMAND ...")
    return session.run(states.default().folder, words, options.tool)


def build(options: argparse.Namespace) -> int:
    binaries.ensure([*binaries.CLUSTER, *options.tool])
    return 0


def path_of_tool(options: argparse.Namespace) -> int:
    print(binaries.ensure([options.name])[options.name])
    return 0


def _record() -> states.Record:
    state = states.default()
    record = state.read()
    if record is None or not record.complete:
        raise DevClusterError("no cluster is running; start one with `make up ONLY=cluster`")
    return record


if __name__ == "__main__":
    sys.exit(main())
