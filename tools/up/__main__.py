"""`python -m tools.up`: start everything, then show it until Ctrl-C, or return with --detach.

Ctrl-C, SIGTERM and a closed terminal end what this command has started; a cluster that ran before
keeps running. If everything is up already, the command attaches to it, and its end stops nothing:
`make down` does. A start that fails ends what it has started.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys

from rich.console import Console

from tools.devcluster import cluster, external, progress
from tools.devcluster import state as states
from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import CURRENT, Record, State
from tools.up import applications, installation
from tools.up.applications import Workplace
from tools.up.kubectl import Kubectl
from tools.up.watching import Watcher


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.up", description=__doc__)
    parser.add_argument("--cluster", choices=["simulated", "current"], default="simulated")
    parser.add_argument("--detach", action="store_true", help="return after the first deliveries")
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    state = states.default()
    was_there = _is_healthy(state)
    try:
        watcher, is_attached = bring_up(state, options.cluster)
    except (DevClusterError, KeyboardInterrupt) as error:
        progress.say(f"error: {error}" if str(error) else "Interrupted.")
        _undo(state, was_there=was_there)
        return 1
    if options.detach:
        return _detach(watcher, state)
    with contextlib.suppress(KeyboardInterrupt):
        _look_on(watcher, "leaves everything running" if is_attached else "stops everything")
    if is_attached:
        progress.say("Everything keeps running.      watch:  make up      stop:  make down")
        return 0
    progress.say("Stopping everything; objects and Redis are kept until `make clean` ...")
    _undo(state, was_there=was_there)
    return 0


def bring_up(state: State, kind: str) -> tuple[Watcher, bool]:
    """Start all; return a watcher, and whether operator and worker were running already."""
    redis_url = external.redis_url(state)
    bring = external.up if kind == CURRENT else cluster.up
    record = bring(state, redis_url)
    place = Workplace(state)
    kubectl = Kubectl(record.kubeconfig)
    is_attached = bool(record.applications) and not applications.ended(record)
    if is_attached:
        progress.say("Operator and worker are running already; attaching to them.")
    else:
        record = _start(place, applications.stop(place, record), kubectl)
    names = installation.accounts(installation.chart_objects())
    client = applications.client(place, names.operator)
    return Watcher(place, record, client), is_attached


def _start(place: Workplace, record: Record, kubectl: Kubectl) -> Record:
    place.prepare()
    progress.say("Installing the CRDs, and accounts and roles from the chart")
    names = installation.install(kubectl)
    applications.log_in(place, kubectl, names)
    port = applications.receiver_port()
    progress.say(f"Starting operator, worker and a webhook receiver at http://127.0.0.1:{port}")
    record = applications.start(place, record, names, port)
    number = applications.apply_examples(kubectl, port)
    progress.say(f"Applied {number} objects of examples/; logs are in {place.state.logs}")
    if record.kind == CURRENT:
        progress.say("This is your own cluster: CRDs, roles and examples stay there afterwards.")
    else:
        progress.say("The node is simulated: Jobs finish, but NO CONTAINER RUNS.")
    return record


def _is_healthy(state: State) -> bool:
    record = state.read()
    return record is not None and cluster.is_healthy(state, record)


def _undo(state: State, *, was_there: bool) -> None:
    """End what was started; a cluster that ran before goes on running."""
    record = state.read()
    if was_there and record is not None:
        applications.stop(Workplace(state), record)
    else:
        cluster.down(state)


def _look_on(watcher: Watcher, end: str) -> None:
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        watcher.show(end)
    else:
        watcher.tell(lambda line: print(line, flush=True))


def _detach(watcher: Watcher, state: State) -> int:
    """Wait for the first deliveries and return; on failure, too, everything stays running."""
    progress.say("Waiting for the first Job and the first webhook (at most 3 minutes)")
    try:
        progress.say(watcher.wait_for_first())
    except DevClusterError as error:
        progress.say(f"error: {error}")
        progress.say(f"Everything still runs. Logs: {state.logs}      stop:  make down")
        return 1
    progress.say('Running. Use it:  eval "$(make env)"      watch:  make up      stop:  make down')
    return 0


if __name__ == "__main__":
    sys.exit(main())
