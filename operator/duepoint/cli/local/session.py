"""A session of ``duepoint run``, from reading the manifests to the end, with its reports.

A session reads the manifests, starts Valkey, starts the installation and writes the objects. Then
it checks the files and the statuses until it is time to end. Reports go to standard output at once,
or into the live view. With ``once`` no regular slot runs: each Schedule is suspended and run by a
ScheduleRun, and the session ends with the last of them.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from duepoint import errors
from duepoint.cli import instants, output
from duepoint.cli.local import installation, jobs, manifestfiles, reports, view
from duepoint.cli.local.installation import Installation
from duepoint.cli.local.manifestfiles import LocalObject, ObjectName, Wrong
from duepoint.cli.local.reports import Record
from duepoint.cli.local.view import ScheduleRow
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules
from duepoint.kube.local.api import LocalApi
from duepoint.runs.run import RunEvent
from duepoint.schedules import slots

LOOK_SECONDS = 0.25
#: Exit codes beside those of every command.
FAILED = 1
NOT_ENDED = 3

_ONCE_SUFFIX = "-once"
_TROUBLE = ("Stalled", "CircuitOpen", "Overdue", "Missed")
_OURS = f"/apis/{schedules.API_VERSION}"
#: Group and plural of each kind, in the order of writing.
_KINDS = {
    "Secret": ("/api/v1", "secrets"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "Schedule": (_OURS, schedules.PLURAL),
    "ScheduleRun": (_OURS, schedules.RUN_PLURAL),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The options of the command line.

    Attributes:
        seconds: how long to run; None = until Ctrl-C.
        once: run each Schedule once, now, and end.
        receive_port: local port of a receiver, which also takes the place of each Service.
    """

    files: tuple[str, ...]
    namespace: str
    executes: bool
    seconds: float | None
    once: bool
    receive_port: int | None

    @property
    def note(self) -> str:
        """The note on how Jobs run here."""
        if self.executes:
            return "Jobs run as processes of this machine: NO CONTAINER, no image, no limits"
        return "Jobs complete after a second: NO CONTAINER RUNS (--exec runs their commands here)"


class RunSession:
    """A session and its state.

    Attributes:
        log: the runs of all Schedules.
        schedules: the rows of all Schedules, for the view.
        troubles: what is not well with the installation.
        received: number of webhooks that the receiver got.
        stopping: set it to end the session; runs in flight get a few seconds to end.
    """

    def __init__(self, request: RunRequest, report: Callable[[Record], None]) -> None:
        self._request = request
        self._report = report
        self._files = manifestfiles.ManifestFiles(
            request.files, namespace=request.namespace, now_us=instants.now_us
        )
        #: Each object as it was last written.
        self._applied: dict[ObjectName, LocalObject] = {}
        #: Objects that stay as they were, because their file is wrong now.
        self._former: dict[ObjectName, LocalObject] = {}
        self._wrong: list[Wrong] = []
        self._conditions: dict[tuple[str, str, str], str] = {}
        self._has_refused = self._has_failed_run = False
        self.log = reports.RunLog(self._kind_of)
        self.schedules: list[ScheduleRow] = []
        self.troubles: list[str] = []
        self.received = 0
        self.stopping = asyncio.Event()

    @property
    def wrong(self) -> list[str]:
        """The mistakes in the manifests as they are now."""
        return [self._text(each) for each in self._wrong if not each.is_note]

    async def run(self) -> int:
        """Run the session; return its exit code. Raises InvalidSetting if it cannot start."""
        self._files.start()
        if not self._files.contents:
            listed = ", ".join(self._request.files)
            message = f"{errors.quoted(listed)} has no file that ends in .yaml, .yml or .json"
            raise errors.InvalidSetting("--filename", message)
        self._say("note", message=self._request.note)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.stopping.set)
        runner = jobs.JobRunner(self._say, executes=self._request.executes)
        with tempfile.TemporaryDirectory(prefix="duepoint-run-") as folder:
            async with (
                installation.serving(Path(folder)) as valkey,
                installation.running(valkey.url, Path(folder), runner, self._on_run) as running,
            ):
                self._say("ready", redisUrl=valkey.url)
                await self._apply(running.api, set(self._files.contents))
                has_ended = await self._look_on(running, valkey)
        counts = {
            "succeeded": self.log.succeeded,
            "failed": self.log.failed,
            "retrying": self.log.retrying,
        }
        how, which = self.summary()
        self._say("stopped", message="; ".join([how, *which]), **counts)
        # With an end on the command line, the caller is a script that reads the exit code.
        is_checked = self._request.once or self._request.seconds is not None
        has_failed = self._has_refused or self._has_failed_run or self.log.failed
        if is_checked and (has_failed or self.log.retrying):
            return FAILED
        return NOT_ENDED if self._request.once and not has_ended else 0

    def summary(self) -> tuple[str, list[str]]:
        """Return a sentence about the session, and a line for each Schedule with failed runs."""
        how, which = self.log.summary()
        return (f"{how}, a manifest was refused" if self._has_refused else how), which

    async def _look_on(self, running: Installation, valkey: installation.EmbeddedValkey) -> bool:
        """Watch until it is time to end; return whether all runs of ``once`` have ended."""
        loop = asyncio.get_running_loop()
        seconds = self._request.seconds
        ends_at = float("inf") if seconds is None else loop.time() + seconds
        while not self.stopping.is_set():
            running.raise_for_ended()
            if valkey.has_ended:
                raise errors.InvalidSetting("run", "the Valkey server has ended; start again")
            await self._look(running)
            if self._request.once:
                if await self._all_ended(running):
                    return True
            elif changed := self._files.look():
                await self._apply(running.api, changed)
            if (left := ends_at - loop.time()) <= 0:
                return False
            try:
                await asyncio.wait_for(self.stopping.wait(), min(LOOK_SECONDS, left))
            except TimeoutError:
                continue
        return False

    # -- manifests -----------------------------------------------------------------------------

    def _kind_of(self, namespace: str, name: str) -> str:
        known = self._applied.get((schedules.KIND, namespace, name))
        return "" if known is None else view.target_kind(known.document["spec"])

    async def _apply(self, api: LocalApi, changed: set[str]) -> None:
        """Write the objects of changed files, and report the changes and mistakes.

        While a file has a mistake, none of its objects is deleted: they stay as they were.
        """
        wanted, wrong = self._files.objects()
        wanted = {key: self._adapted(each) for key, each in wanted.items()}
        if self._request.once:
            runs = [_run_once(each) for each in wanted.values() if each.key[0] == schedules.KIND]
            wanted |= {run.key: run for run in runs}
        wrong_files = {each.file for each in wrong if not each.is_note}
        gone = {key: each for key, each in self._applied.items() if key not in wanted}
        self._former = {key: each for key, each in gone.items() if each.file in wrong_files}
        for key in sorted(gone.keys() - self._former.keys(), key=_order, reverse=True):
            try:
                await api.request("DELETE", _path(key, key[2]))
            except kube_errors.NotFound:
                continue
            finally:
                del self._applied[key]
            self._say_object("deleted", gone[key])
        for key in sorted(wanted, key=_order):
            if self.stopping.is_set():  # writing thousands of objects takes a while
                break
            if trouble := await self._write(api, wanted[key]):
                wrong.append(trouble)
        before, self._wrong = self._wrong, wrong
        for each in wrong:
            if each.file in changed or each not in before:
                self._report_wrong(each)

    async def _write(self, api: LocalApi, new: LocalObject) -> Wrong | None:
        """Write an object if it has changed; return why it cannot be written, or None."""
        before = self._applied.get(new.key)
        if before is not None and before.document == new.document:
            return None
        kind, namespace, name = new.key
        is_run = kind == schedules.RUN_KIND
        if before and is_run and before.document.get("spec") != new.document.get("spec"):
            message = "a ScheduleRun does not change; write another metadata.name for a new run"
            return Wrong(new.where, new.file, "spec", message)
        api.add_namespace(namespace)
        self._applied[new.key] = new  # before its first run, whose report needs its kind
        try:
            if before is None:
                await api.request("POST", _path(new.key), new.document)
            else:
                await api.request("PUT", _path(new.key, name), new.document)
        except kube_errors.ApiError as refused:
            if before is None:
                del self._applied[new.key]
            else:
                self._applied[new.key] = before
            return Wrong(new.where, new.file, "", refused.server_message or str(refused))
        self._say_object("created" if before is None else "changed", new)
        return None

    def _adapted(self, each: LocalObject) -> LocalObject:
        """Return the object, with a webhook to a Service redirected to the receiver, without TLS.

        With ``once`` a Schedule is suspended.
        """
        if each.key[0] != schedules.KIND:
            return each
        spec = dict(each.document["spec"])
        webhook = spec.get("webhook") or {}
        at = self._request.receive_port
        if at is not None and (service := webhook.get("service")):
            rest = {key: value for key, value in webhook.items() if key not in ("service", "tls")}
            spec["webhook"] = {"url": f"http://127.0.0.1:{at}{service.get('path', '/')}", **rest}
        if self._request.once:
            spec.pop("suspendUntil", None)
            spec["suspend"] = True
        return each._replace(document={**each.document, "spec": spec})

    def _say_object(self, change: str, of: LocalObject) -> None:
        kind, namespace, name = of.key
        self._say("object", change=change, kind=kind, namespace=namespace, name=name, file=of.file)

    def _report_wrong(self, wrong: Wrong) -> None:
        text = self._text(wrong)
        if wrong.is_note:
            self._say("note", message=text)
            return
        self._has_refused = True
        found = {"where": wrong.where, "file": wrong.file, "field": wrong.field}
        self._say("refused", **found, message=wrong.message, text=text)

    def _text(self, wrong: Wrong) -> str:
        is_former = any(each.file == wrong.file for each in self._former.values())
        if wrong.is_note or not is_former:
            return str(wrong)
        return f"{wrong} (until then the former version runs)"

    # -- what happens ----------------------------------------------------------------------------

    async def _look(self, running: Installation) -> None:
        """Read the statuses; report each condition that a person should see once."""
        before, self.troubles = self.troubles, running.troubles()
        for trouble in self.troubles:
            if trouble not in before:
                self._say("note", message=trouble)
        items = await running.listed(schedules.PLURAL)
        self.schedules = [self._row(item) for item in items]
        for item in items:
            namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
            for condition in item.get("status", {}).get("conditions", ()):
                kind, reason = condition["type"], condition.get("reason", "")
                key = namespace, name, kind
                if kind not in _TROUBLE or condition["status"] != "True":
                    self._conditions.pop(key, None)
                elif self._conditions.get(key) != reason:
                    self._conditions[key] = reason
                    found = {"namespace": namespace, "schedule": name, "type": kind}
                    message = condition.get("message", "")
                    self._say("condition", **found, reason=reason, message=message)

    def _row(self, item: dict[str, Any]) -> ScheduleRow:
        """Return the row of a Schedule: its status, which may be seconds old, and newer events."""
        row = self.log.newest(view.schedule(item))
        now = dt.datetime.now(dt.UTC)
        if row.next is not None and row.next <= now and not item["spec"].get("jitter"):
            row = replace(row, next=_next_slot(item, now) or row.next)
        if (schedules.KIND, row.namespace, row.name) in self._former:
            row = replace(row, result=view.FORMER, message="its manifest is wrong now, see below")
        return row

    def _on_run(self, event: RunEvent) -> None:
        if (record := self.log.record(event)) is not None:
            self._report(record)

    def on_request(self, request: dict[str, Any]) -> None:
        """Report a webhook that the receiver got."""
        self.received += 1
        self._say("received", **{**request, "arrived": request["arrived"].isoformat()})

    async def _all_ended(self, running: Installation) -> bool:
        """Whether each run has ended; without a time limit, one failed attempt counts as an end."""
        runs = await running.listed(schedules.RUN_PLURAL)
        ends = [_ends(each) for each in runs]
        self._has_failed_run = any("Failed" in each for each in ends)
        is_patient = self._request.seconds is not None
        return all(
            end or (not is_patient and self.log.is_retrying(run["metadata"]["uid"]))
            for run, end in zip(runs, ends, strict=True)
        )

    def _say(self, event: str, /, **fields: Any) -> None:  # noqa: ANN401 - any JSON
        self._report({"event": event, "at": output.time(instants.now_us()), **fields})


def _next_slot(item: dict[str, Any], now: dt.datetime) -> dt.datetime | None:
    """Return the next slot, from the code that arms it; None if there is none or a bad spec."""
    try:
        spec = schedules.spec_of(schedules.item_of(item))
    except errors.InvalidSpec:
        return None
    timeline = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
    following = timeline.next_after(int(now.timestamp() * 1e6))
    return None if following is None else view.instant(output.time(following.slot_us))


def _ends(run: dict[str, Any]) -> list[str]:
    """Return ``Complete`` or ``Failed`` for an ended ScheduleRun; empty before its end."""
    conditions = run.get("status", {}).get("conditions", ())
    true = (each["type"] for each in conditions if each["status"] == "True")
    return [each for each in true if each in ("Complete", "Failed")]


def _run_once(of: LocalObject) -> LocalObject:
    """Return the ScheduleRun for a Schedule."""
    _, namespace, name = of.key
    run = {
        "apiVersion": schedules.API_VERSION,
        "kind": schedules.RUN_KIND,
        "metadata": {"name": name + _ONCE_SUFFIX, "namespace": namespace},
        "spec": {"scheduleName": name, "trigger": {}},
    }
    return of._replace(document=run)


def _order(key: ObjectName) -> tuple[int, str, str]:
    return list(_KINDS).index(key[0]), key[1], key[2]


def _path(key: ObjectName, name: str = "") -> str:
    group, plural = _KINDS[key[0]]
    return port.path(group, key[1], plural, name)
