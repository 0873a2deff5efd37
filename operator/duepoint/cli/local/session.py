"""A session of ``duepoint run``, from reading the manifests to the end, with its reports.

A session reads the manifests, starts Valkey, starts the installation and writes the objects. Then
it checks the files and the statuses until it is time to end. Reports go to standard output at once,
or into the live view. With ``once`` no regular slot runs: each Schedule is suspended and run by a
ScheduleRun, and the session ends with the last of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duepoint import errors
from duepoint.cli import instants, output
from duepoint.cli.local import installation, jobs
from duepoint.cli.local.installation import Installation
from duepoint.cli.local.manifestfiles import LocalObject, ManifestFiles, ObjectName
from duepoint.cli.local.view import Record, RunLog
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules
from duepoint.kube.local.api import LocalApi
from duepoint.model.checks import Problem
from duepoint.runs.run import RunEvent

LOOK_SECONDS = 0.25
#: Exit code beside those of every command.
NOT_ENDED = 3

_TROUBLE = ("Stalled", "CircuitOpen", "Overdue", "Missed")
_OURS = f"/apis/{schedules.API_VERSION}"
#: Group and plural of each kind, in the order of writing.
_KINDS = {
    "Secret": ("/api/v1", "secrets"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "Schedule": (_OURS, schedules.PLURAL),
    "ScheduleRun": (_OURS, schedules.RUN_PLURAL),
}


@dataclass(kw_only=True, eq=False)
class RunSession:
    """A session and its state.

    Attributes:
        report: called with each record.
        files: files and folders.
        executes: run the commands of Jobs.
        seconds: how long to run; None = until Ctrl-C.
        once: run each Schedule once, now, and end.
        receive_port: local port of a receiver, which also takes the place of each Service.
        log: the runs of all Schedules.
        schedules: all Schedules as the API server has them.
        troubles: what is not well with the installation.
        received: number of webhooks that the receiver got.
        stopping: set it to end the session; runs in flight get a few seconds to end.
    """

    report: Callable[[Record], object]
    files: ManifestFiles
    executes: bool
    seconds: float | None
    once: bool
    receive_port: int | None
    log: RunLog = field(default_factory=RunLog)
    schedules: list[dict[str, Any]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    received: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    #: Each object as it was last written.
    _applied: dict[ObjectName, LocalObject] = field(default_factory=dict)
    #: Objects that stay as they were, because their file is wrong now.
    _former: set[ObjectName] = field(default_factory=set)
    _wrong: list[tuple[LocalObject, Problem]] = field(default_factory=list)
    _conditions: set[tuple[str, str, str, str]] = field(default_factory=set)
    _has_failed: bool = False

    @property
    def note(self) -> str:
        """How Jobs run here."""
        if self.executes:
            return "Jobs run as processes of this machine: NO CONTAINER, no image, no limits"
        return "Jobs complete after a second: NO CONTAINER RUNS (--exec runs their commands here)"

    @property
    def former(self) -> set[str]:
        """The Schedules that stay as they were, because their file is wrong now."""
        return {f"{key[1]}/{key[2]}" for key in self._former if key[0] == schedules.KIND}

    @property
    def wrong(self) -> list[str]:
        """The mistakes in the manifests as they are now."""
        return [self._text(of, problem) for of, problem in self._wrong if not problem.is_note]

    async def run(self) -> int:
        """Run the session; return its exit code. Raises InvalidSetting if it cannot start."""
        self.files.start()
        if not self.files.contents:
            message = "no file that ends in .yaml, .yml or .json is there"
            raise errors.InvalidSetting("--filename", message)
        self._log("note", message=self.note)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.stopping.set)
        runner = jobs.JobRunner(self._log, executes=self.executes)
        with tempfile.TemporaryDirectory(prefix="duepoint-run-") as folder:
            async with installation.running(Path(folder), runner, self._on_run) as running:
                self._log("ready", redisUrl=running.redis_url)
                await self._apply(running.api, set(self.files.contents))
                has_ended = await self._watch(running)
        self._log(
            "stopped",
            message="; ".join(self.log.summary()),
            succeeded=self.log.succeeded,
            failed=self.log.failed,
            retrying=self.log.retrying,
        )
        # With an end on the command line, the caller is a script that reads the exit code.
        is_checked = self.once or self.seconds is not None
        if is_checked and (self._has_failed or self.log.failed or self.log.retrying):
            return output.FAILED
        return NOT_ENDED if self.once and not has_ended else 0

    async def _watch(self, running: Installation) -> bool:
        """Watch until it is time to end; return whether all runs of ``once`` have ended."""
        loop = asyncio.get_running_loop()
        ends_at = float("inf") if self.seconds is None else loop.time() + self.seconds
        while not self.stopping.is_set():
            running.raise_for_ended()
            await self._refresh(running)
            if self.once and await self._all_ended(running):
                return True
            if not self.once and (changed := self.files.read_changes()):
                await self._apply(running.api, changed)
            if (left := ends_at - loop.time()) <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), min(LOOK_SECONDS, left))
        return False

    # -- manifests -----------------------------------------------------------------------------

    async def _apply(self, api: LocalApi, changed: set[str]) -> None:
        """Write the objects of changed files, and report the changes and mistakes.

        While a file has a mistake, none of its objects is deleted: they stay as they were.
        """
        found = [each for file in sorted(self.files.contents) for each in self.files.contents[file]]
        wrong = [(each, problem) for each in found for problem in each.problems]
        wanted: dict[ObjectName, LocalObject] = {}
        for each in found:
            if each.document is None:
                continue
            adapted = each._replace(document=self._adapted(each.document))
            if (first := wanted.setdefault(each.key, adapted)) is not adapted:
                message = f"is defined by {first.where} already; that one is used"
                wrong.append((each, Problem("metadata.name", message)))
        if self.once:
            of_schedules = [each for each in wanted.values() if each.key[0] == schedules.KIND]
            wanted |= {run.key: run for run in map(_run_once, of_schedules)}
        wrong_files = {each.file for each, problem in wrong if not problem.is_note}
        gone = self._applied.keys() - wanted.keys()
        self._former = {key for key in gone if self._applied[key].file in wrong_files}
        for key in sorted(gone - self._former, key=_order, reverse=True):
            former = self._applied.pop(key)
            with contextlib.suppress(kube_errors.NotFound):  # such as a ScheduleRun, after its TTL
                await api.request("DELETE", _path(key, key[2]))
                self._log_object("deleted", former)
        for key in sorted(wanted, key=_order):
            if self.stopping.is_set():  # writing thousands of objects takes a while
                break
            if trouble := await self._write(api, wanted[key]):
                wrong.append((wanted[key], trouble))
        before, self._wrong = self._wrong, wrong
        for each, problem in wrong:
            if each.file not in changed and (each, problem) in before:
                continue
            text = self._text(each, problem)
            if problem.is_note:
                self._log("note", message=text)
                continue
            self._has_failed = True
            where = {"where": each.where, "file": each.file, "field": problem.path}
            self._log("refused", **where, message=problem.message, text=text)

    async def _write(self, api: LocalApi, new: LocalObject) -> Problem | None:
        """Write an object if it has changed; return why it cannot be written, or None."""
        former = self._applied.get(new.key)
        if former is not None and former.document == new.document:
            return None
        kind, namespace, name = new.key
        if former is not None and kind == schedules.RUN_KIND:
            message = "a ScheduleRun does not change; write another metadata.name for a new run"
            return Problem("spec", message)
        api.add_namespace(namespace)
        if kind == schedules.KIND:  # before its first run, whose report needs it
            self.log.specs[namespace, name] = (new.document or {})["spec"]
        verb, path = ("POST", "") if former is None else ("PUT", name)
        try:
            await api.request(verb, _path(new.key, path), new.document)
        except kube_errors.ApiError as refused:
            return Problem("", refused.server_message or str(refused))
        self._applied[new.key] = new
        self._log_object("created" if former is None else "changed", new)
        return None

    def _adapted(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the object, with a webhook to a Service redirected to the receiver, without TLS.

        With ``once`` a Schedule is suspended.
        """
        if document["kind"] != schedules.KIND:
            return document
        spec = dict(document["spec"])
        webhook = spec.get("webhook") or {}
        if self.receive_port is not None and (service := webhook.get("service")):
            rest = {key: value for key, value in webhook.items() if key not in ("service", "tls")}
            url = f"http://127.0.0.1:{self.receive_port}{service.get('path', '/')}"
            spec["webhook"] = {"url": url, **rest}
        if self.once:
            spec.pop("suspendUntil", None)
            spec["suspend"] = True
        return {**document, "spec": spec}

    def _log_object(self, change: str, of: LocalObject) -> None:
        kind, namespace, name = of.key
        self._log("object", change=change, kind=kind, namespace=namespace, name=name, file=of.file)

    def _text(self, of: LocalObject, problem: Problem) -> str:
        is_former = any(self._applied[key].file == of.file for key in self._former)
        until = " (until then the former version runs)" if is_former and not problem.is_note else ""
        return f"{of.where}: {problem}{until}"

    # -- what happens ----------------------------------------------------------------------------

    async def _refresh(self, running: Installation) -> None:
        """Read the statuses; report each condition that a person should see once."""
        before, self.troubles = self.troubles, running.troubles()
        for trouble in self.troubles:
            if trouble not in before:
                self._log("note", message=trouble)
        items = await running.listed(schedules.PLURAL)
        self.schedules = items
        found = {
            (item["metadata"]["namespace"], item["metadata"]["name"], one["type"], one["reason"]): (
                one.get("message", "")
            )
            for item in items
            for one in item.get("status", {}).get("conditions", ())
            if one["type"] in _TROUBLE and one["status"] == "True"
        }
        for key in found.keys() - self._conditions:
            what = dict(zip(("namespace", "schedule", "type", "reason"), key, strict=True))
            self._log("condition", **what, message=found[key])
        self._conditions = set(found)

    def _on_run(self, event: RunEvent) -> None:
        if (record := self.log.record(event)) is not None:
            self.report(record)
            sys.stdout.flush()

    def on_request(self, request: dict[str, Any]) -> None:
        """Report a webhook that the receiver got."""
        self.received += 1
        self._log("received", **{**request, "arrived": request["arrived"].isoformat()})

    async def _all_ended(self, running: Installation) -> bool:
        """Whether each run has ended; without a time limit, one failed attempt counts as an end."""
        runs = await running.listed(schedules.RUN_PLURAL)
        ends = {
            run["metadata"]["uid"]: condition["type"]
            for run in runs
            for condition in run.get("status", {}).get("conditions", ())
            if condition["status"] == "True" and condition["type"] in ("Complete", "Failed")
        }
        self._has_failed |= "Failed" in ends.values()
        open_runs = {run["metadata"]["uid"] for run in runs} - ends.keys()
        return not open_runs - (self.log.retried if self.seconds is None else set())

    def _log(self, event: str, /, **fields: Any) -> None:  # noqa: ANN401 - any JSON
        self.report({"event": event, "at": output.time(instants.now_us()), **fields})
        sys.stdout.flush()


def _run_once(of: LocalObject) -> LocalObject:
    """Return the ScheduleRun for a Schedule."""
    _, namespace, name = of.key
    run = schedules.new_run(namespace, name, {"trigger": {}})
    run["metadata"]["name"] = f"{name}-once"
    return of._replace(document=run)


def _order(key: ObjectName) -> tuple[int, str, str]:
    return list(_KINDS).index(key[0]), key[1], key[2]


def _path(key: ObjectName, name: str = "") -> str:
    group, plural = _KINDS[key[0]]
    return port.path(group, key[1], plural, name)
