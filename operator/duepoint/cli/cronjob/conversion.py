"""A CronJob to the Schedule that does the same, or to what is wrong with it.

Everything that the author wrote comes along, also what nobody knows, so that a misspelt field is
refused and not lost. What the API server and other controllers wrote (uid, managedFields, status,
the record of ``kubectl apply``) stays behind, and so do nulls, which mean absent. A Schedule that
comes out has been judged as ``duepoint validate`` judges it, so that what is printed is what the
API server takes; ``notes`` says what it will do otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from duepoint import errors
from duepoint.cli.check import checks, manifests
from duepoint.cli.check.manifests import Manifest, Problem, Unreadable
from duepoint.cli.cronjob import importtimes
from duepoint.cli.cronjob import notes as cronjob_notes

_OF_THE_SERVER = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "managedFields", "selfLink", "clusterName",
)  # fmt: skip
_OF_OTHERS = ("ownerReferences", "finalizers")
_FIRST = ("name", "generateName", "namespace")
_RECORDS = ("kubectl.kubernetes.io/last-applied-configuration", "argocd.argoproj.io/tracking-id")
#: Keys by which a tool that deploys knows its own objects, and the tool.
_TOOLS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "meta.helm.sh/release-name": "Helm",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ported:
    """A manifest of a Schedule.

    Attributes:
        content: the Schedule; anything in it may still be wrong.
        notes: what was changed or left out.
    """

    content: dict[str, Any]
    notes: tuple[Problem, ...]


def ported(cronjob: dict[str, Any], *, namespace: str | None, time_zone: str | None) -> Ported:
    """The Schedule that a CronJob becomes.

    Args:
        cronjob: the object as it was read.
        namespace: for an object that names none; None leaves it so.
        time_zone: for a CronJob that names none: its controller manager's.
    """
    metadata, notes = _metadata(cronjob.get("metadata"), namespace)
    spec, more = _spec(_without_nulls(cronjob.get("spec")), time_zone)
    others = {
        key: value
        for key, value in cronjob.items()
        if key not in ("apiVersion", "kind", "metadata", "spec", "status")
    }
    content = {"apiVersion": manifests.API_VERSION, "kind": "Schedule"}
    return Ported(
        content={**content, "metadata": metadata, "spec": spec, **others},
        notes=(*notes, *more),
    )


def _metadata(given: Any, namespace: str | None) -> tuple[Any, list[Problem]]:  # noqa: ANN401 - any JSON
    given = _without_nulls(given)
    if not isinstance(given, dict):
        return given, []
    kept = _without(given, _OF_THE_SERVER + _OF_OTHERS)
    if namespace is not None and not kept.get("namespace"):
        kept["namespace"] = namespace
    for part in ("labels", "annotations"):
        if isinstance(kept.get(part), dict):
            kept[part] = _without(kept[part], _RECORDS)
        if part in kept and not kept[part]:
            del kept[part]
    kept = {**{key: kept[key] for key in _FIRST if key in kept}, **_without(kept, _FIRST)}
    return kept, [*_of_others(given), *_of_tools(given)]


def _of_others(given: dict[str, Any]) -> Iterator[Problem]:
    for key in _OF_OTHERS:
        if given.get(key):
            yield _note(f"metadata.{key}", "left out: they belong to who made the CronJob")


def _of_tools(given: dict[str, Any]) -> Iterator[Problem]:
    marks = [
        key
        for part in ("labels", "annotations")
        if isinstance(given.get(part), dict)
        for key in given[part]
    ]
    for tool in sorted({_TOOLS[key] for key in marks if key in _TOOLS}):
        yield _note(
            "metadata",
            f"{tool} deploys this CronJob: put the Schedule where {tool} finds it, and take the "
            "CronJob out there",
        )


def _spec(given: Any, time_zone: str | None) -> tuple[Any, list[Problem]]:  # noqa: ANN401 - any JSON
    if not isinstance(given, dict):
        return given, []
    spec, notes = dict(given), list[Problem]()
    if isinstance(spec.get("schedule"), str):
        _port_times(spec, notes)
    if spec.get("concurrencyPolicy") == "":
        del spec["concurrencyPolicy"]  # the API server takes it for unset
    if time_zone is not None and not spec.get("timeZone"):
        spec["timeZone"] = time_zone
    template = spec.get("jobTemplate")
    if isinstance(template, dict) and isinstance(template.get("metadata"), dict):
        spec["jobTemplate"] = _job_template(template, notes)
    order = ("schedule", "timeZone")
    first = {key: spec[key] for key in order if key in spec}
    return {**first, **_without(spec, order)}, notes


def _port_times(spec: dict[str, Any], notes: list[Problem]) -> None:
    text = spec["schedule"]
    new = importtimes.ported(text)
    spec["schedule"] = new.text
    if new.rewritten:
        notes.append(_note("spec.schedule", f"was {errors.quoted(text)}: {new.rewritten}"))
    if new.time_zone is None:
        return
    former = spec.pop("timeZone", None)
    if new.time_zone:
        spec["timeZone"] = new.time_zone
        notes.append(_note("spec.timeZone", f"{new.time_zone} stood inside the schedule"))
    if former not in (None, new.time_zone):
        notes.append(
            _note("spec.timeZone", f"was {errors.quoted(former)}, which the zone inside overruled")
        )


def _job_template(template: dict[str, Any], notes: list[Problem]) -> dict[str, Any]:
    """Of a Job's metadata, labels and annotations are all that a CronJob looks at."""
    metadata = template["metadata"]
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    lost = sorted(set(metadata) - {"labels", "annotations", *_OF_THE_SERVER})
    if lost:
        notes.append(
            _note("spec.jobTemplate.metadata", f"left out as by a CronJob: {', '.join(lost)}")
        )
    rest = _without(template, ("metadata",))
    return {"metadata": kept, **rest} if kept else rest


def _without(given: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in names}


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Null means absent everywhere in Kubernetes; a null in a list stays, to be refused."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _note(path: str, message: str) -> Problem:
    return Problem(path=path, message=message, is_note=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A CronJob and its Schedule.

    Attributes:
        schedule: None where there are problems.
        notes: what was changed or will differ; those without a path hold for every CronJob.
    """

    source: Manifest
    schedule: dict[str, Any] | None = None
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the CronJobs themselves do not say.

    Attributes:
        namespace: written into objects that name none; None leaves them so.
        time_zone: that of the controller manager; None leaves it to the Schedule's default.
        now_us: from when on differences are looked for.
    """

    namespace: str | None
    time_zone: str | None
    now_us: int


def imported(
    found: Iterable[Manifest | Unreadable], given: Given
) -> Iterator[Imported | Unreadable | None]:
    """One for each object in turn; None for one that is no CronJob."""
    for source in found:
        if isinstance(source, Unreadable):
            yield source
        elif not isinstance(source.content, dict) or not source.kind:
            told = "is no Kubernetes object; write apiVersion, kind, metadata and spec"
            yield _refused(source, "", told)
        elif source.kind == checks.CRONJOB and not _is_somebody_elses(source.api_version):
            yield _of_cronjob(source, given)
        else:
            yield None


def _is_somebody_elses(version: str) -> bool:
    """A kind of that name in another group."""
    return "/" in version and not version.startswith("batch/")


def _of_cronjob(source: Manifest, given: Given) -> Imported:
    if source.api_version not in checks.CRONJOB_VERSIONS:
        told = f"{errors.quoted(source.api_version)}: write {checks.CRONJOB_VERSIONS[0]}"
        return _refused(source, "apiVersion", told)
    return _judged(source, given)


def _judged(source: Manifest, given: Given) -> Imported:
    made_of_it = ported(source.content, namespace=given.namespace, time_zone=given.time_zone)
    if not _is_text(made_of_it.content):
        return _refused(source, "", "holds half a character; write UTF-8")
    made = Manifest(
        file=source.file, document=source.document, item=source.item, content=made_of_it.content
    )
    judged = checks.check(
        made,
        namespace=given.namespace or "default",
        created_us=given.now_us,
        newer_kubernetes=True,  # the CronJob's API server has taken it
    )
    assert judged is not None  # noqa: S101 - a Schedule is our business
    wrong = tuple(problem for problem in judged.problems if not problem.is_note)
    if wrong or judged.spec is None:
        return Imported(source=source, problems=wrong)
    others = cronjob_notes.notes(made_of_it.content, judged.spec, given.now_us)
    notes = (*made_of_it.notes, *judged.problems, *others)
    return Imported(source=source, schedule=made_of_it.content, notes=notes)


def _is_text(content: dict[str, Any]) -> bool:
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(source: Manifest, path: str, message: str) -> Imported:
    return Imported(source=source, problems=(Problem(path=path, message=message),))
