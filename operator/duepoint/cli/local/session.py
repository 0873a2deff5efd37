"""One run of ``duepoint run``: from the manifests to the end, with everything reported on the way.

Order: read the manifests, start Valkey, start the engine, write the objects, then look at the files
and the statuses until it is time to end. A report goes to standard output as it happens, or into
the live view. With ``once`` no regular slot runs: each Schedule is suspended and run by a
ScheduleRun, and the end of the last one is the end of the session.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from duepoint import errors
from duepoint.cli import instants, output
from duepoint.cli.local import engine, jobs, manifestfiles, reports, valkey, view
from duepoint.cli.local.manifestfiles import LocalObject, ObjectName, Wrong
from duepoint.cli.local.reports import Record
from duepoint.cli.local.view import ArrivalRow, ScheduleRow
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules
from duepoint.kube.local.api import LocalApi
from duepoint.schedules import slots

LOOK_SECONDS = 0.25
#: Exit codes beside those of every command.
FAILED = 1
NOT_ENDED = 3

_ONCE_SUFFIX = "-once"
_TROUBLE = ("Stalled", "CircuitOpen", "Overdue", "Missed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What the command line asks for.

    Attributes:
        seconds: how long to run; None = until Ctrl-C.
        once: run each Schedule once, now, and end.
        receive_port: of this machine, where a receiver also stands for each Service.
    """

    files: tuple[str, ...]
    namespace: str
    executes: bool
    seconds: float | None
    once: bool
    receive_port: int | None

    @property
    def note(self) -> str:
        """What runs here of a Job."""
        if self.executes:
            return "Jobs run as processes of this machine: NO CONTAINER, no image, no limits"
        return "Jobs complete after a second: NO CONTAINER RUNS (--exec runs their commands here)"


class RunSession:
    """What runs, and what is known of it.

    Attributes:
        arrivals: what Schedules have brought about, for the view.
        schedules: the rows of all Schedules, for the view.
        notices: what a person should know, for the view.
        received: webhooks that the receiver took.
    """

    def __init__(
        self,
        request: RunRequest,
        report: Callable[[Record], None],
    ) -> None:
        self._request = request
        self._report = report
        self._files = manifestfiles.ManifestFiles(
            request.files, namespace=request.namespace, now_us=instants.now_us
        )
        self._kinds: dict[tuple[str, str], str] = {}
        self._log = reports.RunLog(lambda *name: self._kinds.get(name, ""))
        self._wrong: dict[str, list[Wrong]] = {}
        self._conditions: dict[tuple[str, str, str], str] = {}
        self._troubles: list[str] = []
        self._refused = False
        self._has_failed_run = False
        self._stop = asyncio.Event()
        self._valkey: valkey.EmbeddedValkey
        self.schedules: list[ScheduleRow] = []
        self.received = 0

    @property
    def arrivals(self) -> list[ArrivalRow]:
        return self._log.rows

    @property
    def notices(self) -> list[str]:
        return [*self._troubles, *self.wrong]

    @property
    def wrong(self) -> list[str]:
        """What is wrong with the manifests as they are now."""
        return [str(each) for each in self._all_wrong() if not each.is_note]

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """End it; what is under way may end within a few seconds."""
        self._stop.set()

    async def run(self) -> int:
        """The exit code; raises errors.InvalidSetting where it cannot begin."""
        self._files.start()
        if not self._files.contents:
            listed = ", ".join(self._request.files)
            message = f"{errors.quoted(listed)} has no file that ends in .yaml, .yml or .json"
            raise errors.InvalidSetting("--filename", message)
        self._say("note", message=self._request.note)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        with tempfile.TemporaryDirectory(prefix="duepoint-run-") as folder:
            async with valkey.serving(Path(folder)) as self._valkey:
                return await self._run(Path(folder))

    async def _run(self, folder: Path) -> int:
        async with engine.running(
            self._valkey.url,
            folder,
            executes=self._request.executes,
            on_run=self._on_run,
            on_begin=self._on_job,
            on_output=lambda job, line: self._say("output", job=job, line=line),
        ) as running:
            self._say("ready", redisUrl=self._valkey.url)
            applier = Applier(running.api)
            await self._apply(running, applier, self._files.contents)
            ended = await self._look_on(running, applier)
        log = self._log
        counts = {"succeeded": log.succeeded, "failed": log.failed, "retrying": log.retrying}
        how, which = self.summary()
        self._say("stopped", message="; ".join([how, *which]), **counts)
        has_failed = log.failed or log.retrying or self._refused or self._has_failed_run
        if self._is_checked and has_failed:
            return FAILED
        return NOT_ENDED if self._request.once and not ended else 0

    @property
    def _is_checked(self) -> bool:
        """Whether a script asked, for which the exit code is the answer."""
        return self._request.once or self._request.seconds is not None

    def summary(self) -> tuple[str, list[str]]:
        """How it went, and what went badly."""
        how, which = self._log.summary()
        return (f"{how}, a manifest was refused" if self._refused else how), which

    async def _look_on(self, running: engine.Engine, applier: Applier) -> bool:
        """Until it is time to end; whether everything that was to run once has ended."""
        loop = asyncio.get_running_loop()
        seconds = self._request.seconds
        ends_at = None if seconds is None else loop.time() + seconds
        while not self._stop.is_set():
            running.raise_for_ended()
            await self._look(running)
            if self._request.once and await self._all_ended(running):
                return True
            if not self._request.once and (changed := self._files.look()):
                await self._apply(running, applier, changed)
            if self._valkey.has_ended:
                raise errors.InvalidSetting("run", "the Valkey server has ended; start again")
            now = loop.time()
            if ends_at is not None and now >= ends_at:
                return False
            wait = LOOK_SECONDS if ends_at is None else min(LOOK_SECONDS, ends_at - now)
            try:
                await asyncio.wait_for(self._stop.wait(), wait)
            except TimeoutError:
                continue
        return False

    # -- manifests -----------------------------------------------------------------------------

    async def _apply(self, running: engine.Engine, applier: Applier, files: Iterable[str]) -> None:
        """Write what the files say now, and report what changed and what is wrong."""
        wanted, twice = self._files.objects()
        self._kinds = {
            key[1:]: view.target_kind(each.document["spec"])
            for key, each in wanted.items()
            if key[0] == schedules.KIND
        }
        for (_, namespace, _), each in wanted.items():
            service = (each.document.get("spec", {}).get("webhook") or {}).get("service")
            if service and self._request.receive_port is not None:
                name, at = service["name"], self._request.receive_port
                await running.stand_in(namespace, name, service.get("port", 80), at)
        if self._request.once:
            wanted = _run_once(wanted)
        changes, refused = await applier.apply(wanted, self._stop)
        for change in changes:
            kind, namespace, name = change.key
            found = {"kind": kind, "namespace": namespace, "name": name, "file": change.file}
            self._say("object", change=change.what, **found)
        self._note_wrong([*twice, *refused], set(files))

    def _note_wrong(self, found: list[Wrong], files: set[str]) -> None:
        """Report what is newly wrong, and again what still is in a file that was edited."""
        before = self._all_wrong()
        self._wrong = {
            file: [*content.wrong, *(each for each in found if each.file == file)]
            for file, content in self._files.contents.items()
        }
        for each in self._all_wrong():
            if each.file in files or each not in before:
                self._report_wrong(each)

    def _report_wrong(self, wrong: Wrong) -> None:
        if wrong.is_note:
            self._say("note", message=str(wrong))
            return
        self._refused = True
        found = {"where": wrong.where, "file": wrong.file, "field": wrong.field}
        self._say("refused", **found, message=wrong.message, text=str(wrong))

    def _all_wrong(self) -> list[Wrong]:
        return [each for file in sorted(self._wrong) for each in self._wrong[file]]

    # -- what happens ----------------------------------------------------------------------------

    async def _look(self, running: engine.Engine) -> None:
        """The statuses as they are now; a condition that a person should see is reported once."""
        troubles = running.troubles()
        for trouble in troubles:
            if trouble not in self._troubles:
                self._say("note", message=trouble)
        self._troubles = troubles
        items = await running.listed(schedules.PLURAL)
        former = {
            key[1:] for each in self._all_wrong() for key in each.former if key[0] == schedules.KIND
        }
        self.schedules = [_with_former(self._row(item), former) for item in items]
        for item in items:
            self._look_at(item)

    def _row(self, item: dict[str, Any]) -> ScheduleRow:
        """As the status has it, which may be seconds behind, and what is newer than that."""
        row = self._log.newest(view.schedule(item))
        now = dt.datetime.now(dt.UTC)
        if row.next is None or row.next > now or item["spec"].get("jitter"):
            return row
        return replace(row, next=_next_slot(item, now) or row.next)

    def _look_at(self, item: dict[str, Any]) -> None:
        metadata = item["metadata"]
        name = metadata["namespace"], metadata["name"]
        for condition in item.get("status", {}).get("conditions", ()):
            key, said = (*name, condition["type"]), condition.get("message", "")
            if condition["type"] not in _TROUBLE or condition["status"] != "True":
                self._conditions.pop(key, None)
            elif self._conditions.get(key) != condition.get("reason"):
                self._conditions[key] = condition.get("reason", "")
                found = {"namespace": name[0], "schedule": name[1], "type": condition["type"]}
                self._say("condition", **found, reason=condition.get("reason", ""), message=said)

    def _on_job(self, job: jobs.StoredJob) -> None:
        """Report a Job as it would be created."""
        self._say(
            "job",
            job=f"{job.metadata.namespace}/{job.metadata.name}",
            verb="runs" if self._request.executes else "would run",
            command=jobs.shown_command(job),
            spec=job.spec,
        )

    def _on_run(self, event: Any) -> None:  # noqa: ANN401 - a RunEvent
        if (record := self._log.record(event)) is not None:
            self._report(record)

    def on_request(self, request: dict[str, Any]) -> None:
        """Report a webhook that the receiver took."""
        self.received += 1
        self._say("received", **{**request, "arrived": request["arrived"].isoformat()})

    async def _all_ended(self, running: engine.Engine) -> bool:
        """Whether each run has ended, or has failed once and nobody said how long to go on."""
        runs = await running.listed(schedules.RUN_PLURAL)
        self._has_failed_run = any("Failed" in _endings(each) for each in runs)
        is_patient = self._request.seconds is not None
        return all(
            _endings(each) or (not is_patient and self._log.is_retrying(each["metadata"]["uid"]))
            for each in runs
        )

    def _say(self, event: str, /, **fields: Any) -> None:  # noqa: ANN401 - any JSON
        self._report({"event": event, "at": output.time(instants.now_us()), **fields})


def _with_former(row: ScheduleRow, former: set[tuple[str, str]]) -> ScheduleRow:
    """The row, saying so where its manifest is wrong now and what it said before goes on."""
    if (row.namespace, row.name) not in former:
        return row
    return replace(row, result=view.FORMER, message="its manifest is wrong now, see below")


def _next_slot(item: dict[str, Any], now: dt.datetime) -> dt.datetime | None:
    """The next slot by the code that arms it; None where there is none, or no valid spec."""
    try:
        spec = schedules.spec_of(schedules.item_of(item))
    except errors.InvalidSpec:
        return None
    timeline = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
    following = timeline.next_after(int(now.timestamp() * 1e6))
    return None if following is None else view.instant(output.time(following.slot_us))


def _endings(run: dict[str, Any]) -> list[str]:
    """``Complete`` or ``Failed`` of a ScheduleRun; nothing while it goes on."""
    conditions = run.get("status", {}).get("conditions", ())
    true = (each["type"] for each in conditions if each["status"] == "True")
    return [each for each in true if each in ("Complete", "Failed")]


def _run_once(wanted: dict[ObjectName, LocalObject]) -> dict[ObjectName, LocalObject]:
    """The same with each Schedule suspended, and a ScheduleRun for each."""
    made: dict[ObjectName, LocalObject] = {}
    for key, each in wanted.items():
        if key[0] != schedules.KIND:
            made[key] = each
            continue
        spec = dict(each.document["spec"])
        spec.pop("suspendUntil", None)
        made[key] = replace(each, document={**each.document, "spec": {**spec, "suspend": True}})
        run = {
            "apiVersion": schedules.API_VERSION,
            "kind": schedules.RUN_KIND,
            "metadata": {"name": key[2] + _ONCE_SUFFIX, "namespace": key[1]},
            "spec": {"scheduleName": key[2], "trigger": {}},
        }
        made[schedules.RUN_KIND, key[1], key[2] + _ONCE_SUFFIX] = replace(each, document=run)
    return made


# -- writing ---------------------------------------------------------------------------------------


_OURS = f"/apis/{schedules.API_VERSION}"
#: Group and plural of each kind, in the order of writing.
_KINDS = {
    "Secret": ("/api/v1", "secrets"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "Schedule": (_OURS, schedules.PLURAL),
    "ScheduleRun": (_OURS, schedules.RUN_PLURAL),
}
_ORDER = {kind: place for place, kind in enumerate(_KINDS)}


class AppliedChange(NamedTuple):
    """One object that was written."""

    what: Literal["created", "changed", "deleted"]
    key: ObjectName
    file: str


class Applier:
    """Remembers what was written last."""

    def __init__(self, api: LocalApi) -> None:
        self._api = api
        self._applied: dict[ObjectName, LocalObject] = {}

    async def apply(
        self, wanted: Mapping[ObjectName, LocalObject], stop: asyncio.Event
    ) -> tuple[list[AppliedChange], list[Wrong]]:
        """Write what has changed since the last call; thousands take a while, so until ``stop``."""
        changes: list[AppliedChange] = []
        wrong: list[Wrong] = []
        for key in sorted(self._applied.keys() - wanted.keys(), key=_order, reverse=True):
            gone = self._applied.pop(key)
            if await self._delete(key):
                changes.append(AppliedChange("deleted", key, gone.file))
        for key in sorted(wanted, key=_order):
            if stop.is_set():
                break
            before, new = self._applied.get(key), wanted[key]
            if before is not None and before.document == new.document:
                continue
            if before is not None and key[0] == "ScheduleRun" and _spec(before) != _spec(new):
                message = "a ScheduleRun does not change; write another metadata.name for a new run"
                wrong.append(Wrong(where=new.where, file=new.file, field="spec", message=message))
                continue
            try:
                change = await self._write(key, new)
            except kube_errors.ApiError as refused:
                message = refused.server_message or str(refused)
                former = () if before is None else (key,)
                refusal = Wrong(
                    where=new.where, file=new.file, field="", message=message, former=former
                )
                wrong.append(refusal)
            else:
                self._applied[key] = new
                changes.append(change)
        return changes, wrong

    async def _write(self, key: ObjectName, new: LocalObject) -> AppliedChange:
        self._api.add_namespace(key[1])
        try:
            await self._api.request("PUT", _path(key, key[2]), new.document)
        except kube_errors.NotFound:
            await self._api.request("POST", _path(key), new.document)
            return AppliedChange("created", key, new.file)
        return AppliedChange("changed", key, new.file)

    async def _delete(self, key: ObjectName) -> bool:
        try:
            await self._api.request("DELETE", _path(key, key[2]))
        except kube_errors.NotFound:
            return False
        return True


def _order(key: ObjectName) -> tuple[int, str, str]:
    return _ORDER[key[0]], key[1], key[2]


def _path(key: ObjectName, name: str = "") -> str:
    group, plural = _KINDS[key[0]]
    return port.path(group, key[1], plural, name)


def _spec(of: LocalObject) -> Any:  # noqa: ANN401 - any JSON
    return of.document.get("spec")
