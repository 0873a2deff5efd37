"""Converts a CronJob into a Schedule that does the same, or reports what is wrong with it.

All fields of the author are copied, even unknown ones, so that a misspelt field is refused and not
lost. Fields of the API server and other controllers (uid, managedFields, status, the record of
``kubectl apply``) are left out, and so are nulls, which mean absent. Each Schedule is checked in
the same way as by ``duepoint validate``, so the API server accepts what is printed.
``differences_of`` says what the Schedule will do differently.

Our grammar refuses expressions that CronJob accepts but that mean something else than they seem to:
a zone inside the text, a step larger than its field, a range that begins with a star, white space
outside of ASCII, an ``@every`` with fractions of a second. These are rewritten to what CronJob
makes of them. Any other text stays as it is, without surrounding white space. Source:
``parser.go`` and ``constantdelay.go`` of robfig/cron v3.0.1, ``time.ParseDuration`` of Go.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import click
import yaml

from duepoint import errors, expressions
from duepoint.cli import instants, options, output
from duepoint.cli.check import checks, manifests
from duepoint.cli.check.manifests import Manifest
from duepoint.cli.cronjob import differences
from duepoint.expressions import descriptors, fields
from duepoint.model.checks import Problem, note
from duepoint.schedules.spec import ScheduleSpec

_OF_THE_SERVER = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "managedFields", "selfLink", "clusterName",
)  # fmt: skip
_OF_OTHERS = ("ownerReferences", "finalizers")
_RECORDS = ("kubectl.kubernetes.io/last-applied-configuration", "argocd.argoproj.io/tracking-id")


def ported(
    cronjob: dict[str, Any], *, namespace: str | None, time_zone: str | None
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the Schedule for a CronJob, and notes on what was changed or left out.

    The Schedule is not checked yet.

    Args:
        cronjob: the object as it was read.
        namespace: for an object without one; None adds none.
        time_zone: for a CronJob without one: that of its controller manager.
    """
    metadata, notes = _metadata(_without_nulls(cronjob.get("metadata")), namespace)
    spec, more = _spec(_without_nulls(cronjob.get("spec")), time_zone)
    head = {"apiVersion": manifests.API_VERSION, "kind": "Schedule"}
    others = _without(cronjob, ("apiVersion", "kind", "metadata", "spec", "status"))
    return {**head, "metadata": metadata, "spec": spec, **others}, notes + more


def _metadata(given: Any, namespace: str | None) -> tuple[Any, list[Problem]]:  # noqa: ANN401 - any JSON
    if not isinstance(given, dict):
        return given, []
    notes = [
        note(f"metadata.{key}", "left out: they belong to who made the CronJob")
        for key in _OF_OTHERS
        if given.get(key)
    ]
    kept = _without(given, _OF_THE_SERVER + _OF_OTHERS)
    if namespace is not None and not kept.get("namespace"):
        kept["namespace"] = namespace
    for part in ("labels", "annotations"):
        if isinstance(kept.get(part), dict):
            kept[part] = _without(kept[part], _RECORDS)
        if part in kept and not kept[part]:
            del kept[part]
    return kept, notes


def _spec(given: Any, time_zone: str | None) -> tuple[Any, list[Problem]]:  # noqa: ANN401 - any JSON
    if not isinstance(given, dict):
        return given, []
    spec, notes = dict(given), list[Problem]()
    if isinstance(spec.get("schedule"), str):
        _port_times(spec, notes)
    if spec.get("concurrencyPolicy") == "":
        del spec["concurrencyPolicy"]  # the API server treats it as unset
    if time_zone is not None and not spec.get("timeZone"):
        spec["timeZone"] = time_zone
    template = spec.get("jobTemplate")
    if isinstance(template, dict) and isinstance(metadata := template.get("metadata"), dict):
        # a CronJob uses only labels and annotations of a Job's metadata
        kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
        lost = sorted(set(metadata) - {"labels", "annotations", *_OF_THE_SERVER})
        if lost:
            message = f"left out as by a CronJob: {', '.join(lost)}"
            notes.append(note("spec.jobTemplate.metadata", message))
        rest = _without(template, ("metadata",))
        spec["jobTemplate"] = {"metadata": kept, **rest} if kept else rest
    return spec, notes


def _port_times(spec: dict[str, Any], notes: list[Problem]) -> None:
    text = spec["schedule"]
    inside = _PREFIX.fullmatch(text.strip())
    spec["schedule"], why = ported_times(text if inside is None else inside["rest"])
    try:
        expressions.compile_expression(spec["schedule"], from_us=0)
    except errors.InvalidExpression as error:
        if error.never_fires:
            spec["schedule"], spec["suspend"] = descriptors.NEVER, True
            why = "a date that never comes; the Schedule is suspended and runs when it is triggered"
    if why:
        notes.append(note("spec.schedule", f"was {errors.quoted(text)}: {why}"))
    if inside is None:
        return
    zone, former = inside["zone"] or "Etc/UTC", spec.pop("timeZone", None)
    if zone != _OF_THE_MACHINE:
        spec["timeZone"] = zone
        notes.append(note("spec.timeZone", f"{zone} was inside the schedule"))
    if former not in (None, zone):
        notes.append(
            note("spec.timeZone", f"was {errors.quoted(former)}, which the zone inside overruled")
        )


def _without(given: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in names}


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a value without nulls, which mean absent; a null in a list stays, to be refused."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def imported(
    source: Manifest, *, namespace: str | None, time_zone: str | None, now_us: int
) -> tuple[dict[str, Any] | None, tuple[Problem, ...]]:
    """Return the Schedule for an object, and notes; None and its problems if it cannot become one.

    An object that is not a CronJob has no problems. A note says what was changed or will differ;
    one without a path applies to every CronJob.

    Args:
        namespace: for an object without one; None adds none.
        time_zone: that of the controller manager; None leaves it to the Schedule's default.
        now_us: where the search for differences begins.
    """
    if source.trouble or not source.kind:
        judged = checks.check(source, namespace="", created_us=now_us)
        return None, () if judged is None else judged.problems
    version = source.api_version
    if source.kind != checks.CRONJOB or ("/" in version and not version.startswith("batch/")):
        return None, ()  # another kind, or a kind of that name in another group
    if version not in checks.CRONJOB_VERSIONS:
        message = f"{errors.quoted(version)}: write {checks.CRONJOB_VERSIONS[0]}"
        return None, (Problem("apiVersion", message),)
    content, changes = ported(source.content, namespace=namespace, time_zone=time_zone)
    judged = checks.check(
        replace(source, content=content), namespace=namespace or "default", created_us=now_us
    )
    assert judged is not None  # noqa: S101 - a Schedule is judged
    if judged.spec is None:
        return None, tuple(problem for problem in judged.problems if not problem.is_note)
    return content, (
        *changes, *judged.problems, *differences_of(content, judged.spec, now_us)
    )  # fmt: skip


# -- expressions -------------------------------------------------------------------------------

_PREFIX = re.compile(r"(?:CRON_)?TZ=(?P<zone>\S*)\s+(?P<rest>.*)", re.DOTALL)
#: White space in Go outside of ASCII.
_WIDE = re.compile("[\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_STEPPED = re.compile(r"(?P<range>[^/]+)/(?P<step>\+?\d{1,18})", re.ASCII)
_PART = re.compile(r"(\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})(ns|us|µs|μs|ms|s|m|h)")
_UNIT_SECONDS = {
    "ns": Decimal("1e-9"), "us": Decimal("1e-6"), "µs": Decimal("1e-6"), "μs": Decimal("1e-6"),
    "ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600),
}  # fmt: skip
#: Go's name for the machine's own zone.
_OF_THE_MACHINE = "Local"


def ported_times(text: str) -> tuple[str, str]:
    """Return an expression with the CronJob's times, and why it was changed, or ""."""
    plain = text.strip(expressions.WHITE)
    wide = _WIDE.search(plain)
    rest = _WIDE.sub(" ", text).strip() if wide else plain
    words = rest.split()
    new, reasons = rest, list[str]()
    if wide:
        reasons.append(f"U+{ord(wide[0]):04X} is a blank to a CronJob")
    if words[:1] == ["@every"] and len(words) == 2:
        seconds = _every_seconds(words[1])
        if seconds:
            new = f"@every {seconds}s"
            reasons.append(f"a CronJob counts whole seconds, at least one: {seconds}s")
    elif len(words) == len(differences.FIELDS):
        pairs = [
            [_item(kind, item) for item in word.split(",")]
            for kind, word in zip(differences.FIELDS, words, strict=True)
        ]
        new = " ".join(",".join(item for item, _ in field) for field in pairs)
        reasons += [why for field in pairs for _, why in field if why]
    return (new, "; ".join(reasons)) if reasons else (rest, "")


def _item(kind: fields.FieldKind, item: str) -> tuple[str, str]:
    low, dash, _ = item.partition("-")
    if dash and low in ("*", "?"):
        _, slash, step = item.partition("/")  # robfig/cron ignores what follows the star
        meant, _ = _item(kind, f"*{slash}{step}")
        return meant, f"a CronJob reads {item} as {meant}"
    stepped = _STEPPED.fullmatch(item)
    if stepped and int(stepped["step"]) > kind.size:
        first = stepped["range"].partition("-")[0]
        first = str(kind.low) if first in ("*", "?") else first
        return first, f"with a step larger than its field, {item} is only ever {first}"
    return item, ""


def _every_seconds(period: str) -> int:
    """Return the whole seconds of a period, at least 1; 0 if it needs no change or is not valid."""
    period = period.removeprefix("+")
    parts = _PART.findall(period)
    if not parts or "".join(itertools.chain(*parts)) != period:
        return 0
    exact = sum(Decimal(count) * _UNIT_SECONDS[unit] for count, unit in parts)
    seconds = max(1, int(exact))
    is_known = exact == seconds and not period.endswith(("ns", "us", "µs", "μs"))
    return 0 if is_known else seconds


# -- notes -----------------------------------------------------------------------------------------


#: The shortest time to keep a finished Job, because its name proves that its slot ran.
_SHORTEST_TTL_SECONDS = 600
_OF_ALL = (
    "after an outage the newest missed slot runs, found exactly (a CronJob can miss it where "
    "distances differ), and the others are counted; after an edit or a resume nothing runs that "
    "was due before; Jobs' names end in the slot's unix seconds instead of minutes"
)


def differences_of(content: dict[str, Any], spec: ScheduleSpec, from_us: int) -> Iterator[Problem]:
    """Yield everything that will differ, in the order of the fields."""
    raw = content["spec"]
    for text in spec.rule.timing.schedules:
        if text != descriptors.NEVER:
            sentences = differences.sentences(text, spec.rule.timing.time_zone, from_us)
            yield from (note("spec.schedule", f"a CronJob {each}") for each in sentences)
    if raw.get("timeZone") is None:
        yield note(
            "spec.timeZone",
            "unset: a CronJob takes the zone of its controller manager, a Schedule Etc/UTC",
        )
    deadline = spec.rule.policy.starting_deadline_seconds
    if deadline is not None and deadline < 10:
        yield note(
            "spec.startingDeadlineSeconds",
            f"a CronJob with {deadline} may never run, because its controller looks every 10 s; "
            "a Schedule runs what is on time",
        )
    if raw.get("concurrencyPolicy") == "Forbid":
        yield note(
            "spec.concurrencyPolicy",
            "a CronJob starts a slot that was due while a Job ran when that Job ends, if its "
            "deadline allows; a Schedule skips it for good and counts it; the CronJob's way is "
            "concurrencyPolicy: Queue",
        )
    if raw.get("suspend"):
        yield note(
            "spec.suspend",
            "the Schedule will be suspended, too; when it is resumed, it starts nothing that was "
            "due before, where a CronJob starts the newest missed slot at once",
        )
    lives = raw["jobTemplate"]["spec"].get("ttlSecondsAfterFinished")
    if isinstance(lives, int) and lives < _SHORTEST_TTL_SECONDS:
        yield note(
            "spec.jobTemplate.spec.ttlSecondsAfterFinished",
            f"{lives} is raised to {_SHORTEST_TTL_SECONDS}: a Job's name proves that its slot ran",
        )
    yield note("", _OF_ALL)


_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_BARE = re.compile(r"[A-Za-z/][A-Za-z0-9_./@=+-]*(?::[A-Za-z0-9_./@=+-]+)*", re.ASCII)
_WORDS = frozenset(
    "y n yes no on off true false null nan inf infinity".split()  # noqa: SIM905 - a list of words
)
#: Wider than any line, so that no text is folded.
_WIDTH = 1 << 20


def text_of(value: object) -> str:
    """Return one YAML document, without ``---`` and with a line break at its end."""
    for allow_unicode in (True, False):
        written: str = yaml.dump(
            value, Dumper=_Dumper, sort_keys=False, allow_unicode=allow_unicode, width=_WIDTH
        )
        if not output.deceives(written):
            break
    return written


class _Dumper(_Base):  # type: ignore[misc]
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
        return True


def _text(dumper: Any, text: str) -> Any:  # noqa: ANN401 - yaml's own types
    if "\n" in text:
        style = "|"  # yaml itself uses quotes if a block cannot represent the text
    elif _BARE.fullmatch(text) and text.lower() not in _WORDS:
        style = None
    else:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


_HEAD = (
    "Schedules converted from CronJobs; above each, comments say what will differ.",
    "Suspend or delete a CronJob before its Schedule is applied, or both will run:",
    "kubectl delete cronjob NAME --cascade=orphan",
)


def _comment(texts: Iterable[str]) -> None:
    sys.stdout.writelines(f"# {output.one_line(text)}\n" for text in texts)


@click.group("import", cls=options.CommandGroup)
def importing() -> None:
    """Print Schedules made of what another scheduler runs."""


@importing.command("cronjob")
@options.files
@click.option(
    "--namespace", "-n", metavar="NAME", type=options.NAME,
    help="Written into objects that name none.",
)  # fmt: skip
@click.option(
    "--time-zone", metavar="ZONE", type=options.ZONE,
    help="Written where a CronJob names no zone: that of its controller manager. Unset: Etc/UTC.",
)  # fmt: skip
def cronjob(*, files: tuple[str, ...], namespace: str | None, time_zone: str | None) -> None:
    """Print CronJobs of files as Schedules, and say what will differ.

    Those of a cluster come from kubectl, by standard input.

    Example: kubectl get cronjobs -A -o yaml | duepoint import cronjob - > schedules.yaml
    """
    made = wrong = passed_over = 0
    now_us = instants.now_us()
    # Each document is written at once, so that a thousand take no more memory than one.
    for source in itertools.chain.from_iterable(map(manifests.read, files)):
        schedule, notes = imported(source, namespace=namespace, time_zone=time_zone, now_us=now_us)
        if schedule is None:
            wrong += bool(notes)
            passed_over += not notes
            for problem in notes:
                output.complain(str(problem), source.where)
            continue
        made += 1
        _comment(_HEAD if made == 1 else ())
        sys.stdout.write("---\n")
        _comment([source.where, *map(str, notes)])
        sys.stdout.write(text_of(schedule))
    if made and not sys.stdout.isatty():
        output.complain(" ".join(_HEAD))
    if passed_over:
        output.complain(f"{passed_over} of another kind passed over")
    if wrong:
        if made:
            output.complain(f"{wrong} could not be ported, for the reasons above; {made} printed")
        raise click.exceptions.Exit(output.BAD_INPUT)
    if not made:
        output.complain("there is no CronJob")
