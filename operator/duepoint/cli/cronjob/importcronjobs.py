"""A CronJob to the Schedule that does the same: what is carried over, what is left behind.

Everything that the author wrote comes along, also what nobody knows, so that a misspelt field is
refused and not lost. What the API server and other controllers wrote (uid, managedFields, status,
the record of ``kubectl apply``) stays behind, and so do nulls, which mean absent. Nothing is judged
here; ``checks`` judges the result, ``porting`` tells what will differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from duepoint import errors
from duepoint.cli.check import manifests
from duepoint.cli.check.manifests import Problem
from duepoint.cli.cronjob import importtimes

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
