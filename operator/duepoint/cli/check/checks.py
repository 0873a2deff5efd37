"""Checks a manifest: returns its problems, and the spec that operator and worker would act on.

There are three checks, in the same order as in a cluster: the object around the spec (by the rules
of ``k8s.io/apimachinery``), the schema of the CRD (structure.py), and the function with which the
operator accepts a spec (``parse`` of ``schedules.spec`` and of ``schedules.sets.setspec``). A
problem that one of them has reported is not reported again; all others are reported. A CronJob is
checked as the Schedule that it becomes by changing ``apiVersion`` and ``kind``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint import errors, expressions
from duepoint.cli import instants, options
from duepoint.cli.check import manifests, structure
from duepoint.cli.check.manifests import Manifest, Problem
from duepoint.expressions import timezones
from duepoint.kube import schedules
from duepoint.model.checks import MISSING
from duepoint.schedules import rule as rules
from duepoint.schedules import spec as specs
from duepoint.schedules.sets import setspec

#: API groups of Kubernetes itself, which contain none of our kinds.
_KUBERNETES = ("batch/", "apps/")
_TOP = ("apiVersion", "kind", "metadata", "spec", "status")

_UID = "00000000-0000-4000-8000-000000000000"

CRONJOB = "CronJob"
CRONJOB_VERSIONS = ("batch/v1", "batch/v1beta1")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedManifest:
    """A manifest of one of our kinds, or one that becomes one, with its problems and notes.

    Attributes:
        spec: the Schedule that operator and worker act on; None if there are problems, and for
            another kind.
    """

    manifest: Manifest
    problems: tuple[Problem, ...]
    spec: specs.ScheduleSpec | None = None

    @property
    def is_valid(self) -> bool:
        return all(problem.is_note for problem in self.problems)


def check(manifest: Manifest, *, namespace: str, created_us: int) -> CheckedManifest | None:
    """Check a manifest; return None for a kind that is not ours.

    Args:
        namespace: the namespace of an object without one.
        created_us: the creation time of an object without one.
    """
    if manifest.trouble:
        return _wrong(manifest, "", manifest.trouble)
    if not isinstance(manifest.content, dict) or not manifest.kind:
        return _wrong(
            manifest, "", "is no Kubernetes object; write apiVersion, kind, metadata and spec"
        )
    kind, version = manifest.kind, manifest.api_version
    if kind == CRONJOB and version in CRONJOB_VERSIONS:
        kind = "Schedule"
    elif kind not in structure.schemas() or version != manifests.API_VERSION:
        wrong = _misnamed(kind, version)
        return _wrong(manifest, *wrong) if wrong else None
    content = manifest.content
    found = list(_around(kind, content))
    if not isinstance(content.get("spec"), dict):
        trouble = "is missing; write a mapping"
        if isinstance(content.get("spec"), list):
            trouble = "is a list; write a mapping, without dashes before its fields"
        elif content.get("spec") is not None:
            trouble = "is of the wrong type; write a mapping"
        found.append(Problem("spec", trouble))
        return CheckedManifest(manifest=manifest, problems=tuple(found))
    found += structure.problems(kind, content["spec"])
    misspelt_in = {each.path.rpartition(".")[0] for each in found if each.is_misspelt}
    spec, more = _parsed(kind, content, namespace=namespace, created_us=created_us)
    found += [
        problem
        for problem in more
        if problem.path not in misspelt_in
        and not (problem.message == MISSING and problem.path.rpartition(".")[0] in misspelt_in)
        and not _is_known(problem.path, found)
    ]
    for judge in (_of_texts(content["spec"], created_us=created_us), _of_job(content["spec"])):
        known = {problem.path for problem in found if not problem.is_note}
        found += [problem for problem in judge if problem.path not in known]
    is_valid = all(problem.is_note for problem in found)
    return CheckedManifest(
        manifest=manifest, problems=tuple(found), spec=spec if is_valid else None
    )


def _misnamed(kind: str, version: str) -> tuple[str, str] | None:
    """Return the problem of a kind or version that resembles one of ours; None for others."""
    known = structure.schemas()
    if version.startswith(manifests.GROUP.partition(".")[0]):
        if kind in known:
            return "apiVersion", f"{errors.quoted(version)}: write {manifests.API_VERSION}"
        return "kind", f"{errors.quoted(kind)}: write {' or '.join(known)}"
    if kind in known and (version.startswith(_KUBERNETES) or "/" not in version):
        wrong = errors.quoted(version) + ":" if version else "is missing;"
        return "apiVersion", f"{wrong} write {manifests.API_VERSION}"
    return None


def _wrong(manifest: Manifest, path: str, message: str) -> CheckedManifest:
    problem = Problem(path, message)
    return CheckedManifest(manifest=manifest, problems=(problem,))


# -- around the spec -------------------------------------------------------------------------


def _around(kind: str, content: dict[str, Any]) -> Iterator[Problem]:
    for name in content:
        if name not in _TOP:
            meant = options.nearest(name, _TOP)
            hint = f"did you mean {meant}?" if meant else f"known here: {', '.join(_TOP)}"
            yield Problem(name[:64], f"is unknown; {hint}")
    metadata = content.get("metadata")
    if not isinstance(metadata, dict):
        yield Problem("metadata", "is missing; write a mapping with a name")
        return
    yield from _of_metadata(kind, metadata)


# -- as the operator reads it ----------------------------------------------------------------


def _parsed(
    kind: str, content: dict[str, Any], *, namespace: str, created_us: int
) -> tuple[specs.ScheduleSpec | None, list[Problem]]:
    metadata = _mapping(content.get("metadata"))
    created = _instant(metadata.get("creationTimestamp"))
    created_us = created_us if created is None else created
    try:
        # As compact as the API server writes it, because the size of a payload is limited.
        text = json.dumps(
            content["spec"], allow_nan=False, ensure_ascii=False, separators=(",", ":")
        ).encode()
        if kind == schedules.RUN_KIND:
            schedules.wanted(text, created_us=created_us)
            return None, []
        parse: Callable[..., Any] = setspec.parse if kind == schedules.SET_KIND else specs.parse
        spec = parse(
            text,
            namespace=_text(metadata.get("namespace")) or namespace,
            name=_text(metadata.get("name")) or _text(metadata.get("generateName")),
            uid=_text(metadata.get("uid")) or _UID,
            generation=1,
            created_us=created_us,
        )
        return spec if isinstance(spec, specs.ScheduleSpec) else None, []
    except errors.InvalidSpec as error:
        return None, [Problem(each.path, each.message) for each in error.errors]
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        # JSON cannot represent it: an infinite number, or half of a surrogate pair.
        return None, [Problem("spec", f"cannot be written as JSON: {error}")]


def _of_texts(spec: dict[str, Any], *, created_us: int) -> Iterator[Problem]:
    """Yield problems of each expression; the operator checks them only if all else is valid."""
    zone = spec.get("timeZone")
    if not isinstance(zone, str) or not zone:
        zone = rules.DEFAULT_ZONE
    try:
        timezones.load(zone)
    except errors.InvalidExpression as error:
        yield Problem("spec.timeZone", str(error))
        zone = rules.DEFAULT_ZONE
    listed = spec.get("schedules")
    several = enumerate(listed if isinstance(listed, list) else [])
    texts = [("spec.schedule", spec.get("schedule"))]
    texts += [(f"spec.schedules[{index}]", text) for index, text in several]
    for path, text in texts:
        if isinstance(text, str):
            try:
                expressions.compile_expression(
                    text, time_zone=zone, anchor_us=created_us, from_us=created_us
                )
            except errors.InvalidExpression as error:
                yield Problem(path, str(error))


def _is_known(path: str, problems: Iterable[Problem]) -> bool:
    """Whether a problem of the field, of a field around it or of a part of it was reported.

    The spec as a whole is a field of its own here: its problems say nothing about its parts, and
    theirs nothing about it.
    """
    known = [problem.path for problem in problems if not problem.is_note]
    return any(each == path or _is_part(each, path) or _is_part(path, each) for each in known)


def _is_part(path: str, whole: str) -> bool:
    return whole != "spec" and path.startswith((f"{whole}.", f"{whole}["))


def _instant(value: Any) -> int | None:  # noqa: ANN401 - any JSON
    try:
        return instants.strict_us(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _text(value: Any) -> str:  # noqa: ANN401 - any JSON
    return value if isinstance(value, str) else ""


def _of_job(spec: dict[str, Any]) -> Iterator[Problem]:
    """Yield the problems of the jobTemplate in a Schedule's spec, if it has one."""
    template = _mapping(spec.get("jobTemplate"))
    job = _mapping(template.get("spec"))
    pod_template = _mapping(job.get("template"))
    pod = _mapping(pod_template.get("spec"))
    for path, each in (("spec.jobTemplate", template), (f"{structure.JOB}.template", pod_template)):
        yield from _labels_and_annotations(_mapping(each.get("metadata")), f"{path}.metadata")
    if job.get("podFailurePolicy") is not None and pod.get("restartPolicy") == "OnFailure":
        message = "needs restartPolicy: Never in the Pod's spec"
        yield Problem(f"{structure.JOB}.podFailurePolicy", message)
    volumes = [each.get("name") for each in _mappings(pod.get("volumes"))]
    names: set[str] = set()
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(_mappings(pod.get(kind))):
            path = f"{structure.POD}.{kind}[{index}]"
            name = container.get("name")
            if isinstance(name, str):
                if name in names:
                    yield Problem(f"{path}.name", f"{errors.quoted(name)} is there twice")
                names.add(name)
            for number, mount in enumerate(_mappings(container.get("volumeMounts"))):
                name = mount.get("name")
                if isinstance(name, str) and name not in volumes:
                    yield Problem(
                        f"{path}.volumeMounts[{number}].name",
                        f"{errors.quoted(name)}: there is no volume of that name in volumes",
                    )


def _mapping(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON
    return [_mapping(each) for each in value] if isinstance(value, list) else []


# -- metadata, by ValidateObjectMeta, IsQualifiedName and IsValidLabelValue ----------


_DNS_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(_DNS_NAME)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(f"({_WORD})?")
_QUALIFIED_NAME = re.compile(rf"((?=[^/]{{1,253}}/){_DNS_NAME}/)?{_WORD}")

#: The name of a Job has eleven more characters for its slot, and at most 63.
_LONGEST_NAME = (
    52,
    "because each Job's name carries 11 more for its slot and ends at 63",
)
#: The limits of kinds whose names are not part of Jobs' names.
_LONGEST_NAMES = {"ScheduleSet": (63, "because the name is the value of a label")}
#: The most bytes of all annotations, keys and values together.
_MOST_ANNOTATION_BYTES = 256 * 1024

_LETTERS = "at most 63 letters, digits, -, _ and ., the first and the last a letter or digit"


def _of_metadata(kind: str, metadata: dict[str, Any]) -> Iterator[Problem]:
    """Yield what the API server would refuse in the metadata of an object of this kind."""
    yield from structure.problems_of_metadata(metadata)
    prefix, namespace = metadata.get("generateName"), metadata.get("namespace")
    if wrong := _wrong_name(kind, metadata.get("name"), prefix):
        yield Problem("metadata.name", wrong)
    if isinstance(prefix, str) and not _NAME.fullmatch(f"{prefix}a"):
        message = f"{errors.quoted(prefix)}: write lower-case letters, digits, - and ."
        yield Problem("metadata.generateName", message)
    if namespace not in (None, "") and not (
        isinstance(namespace, str) and _NAMESPACE.fullmatch(namespace)
    ):
        message = f"{errors.quoted(namespace)}: write lower-case letters, digits and -"
        yield Problem("metadata.namespace", message)
    yield from _labels_and_annotations(metadata, "metadata")
    yield from _of_finalizers(metadata.get("finalizers"))


def _labels_and_annotations(metadata: dict[str, Any], path: str) -> Iterator[Problem]:
    """Yield wrong labels and annotations of an object's or a template's metadata."""
    labels = metadata.get("labels")
    for key, value in labels.items() if isinstance(labels, dict) else ():
        yield from _of_key(key, f"{path}.labels", is_wrong=not _QUALIFIED_NAME.fullmatch(key))
        if isinstance(value, str) and not _LABEL_VALUE.fullmatch(value):
            message = f"{errors.quoted(value)} is no value of a label; write {_LETTERS}"
            yield Problem(f"{path}.labels.{key[:64]}", message)
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict):
        return
    for key in annotations:
        # The API server accepts capitals in the prefix of an annotation.
        is_wrong = not _QUALIFIED_NAME.fullmatch(key.lower())
        yield from _of_key(key, f"{path}.annotations", is_wrong=is_wrong)
    texts = (text for pair in annotations.items() for text in pair if isinstance(text, str))
    if (
        size := sum(len(text.encode("utf-8", "replace")) for text in texts)
    ) > _MOST_ANNOTATION_BYTES:
        message = f"have {size} bytes in all; at most {_MOST_ANNOTATION_BYTES} are taken"
        yield Problem(f"{path}.annotations", message)


def _of_key(key: str, path: str, *, is_wrong: bool) -> Iterator[Problem]:
    if is_wrong:
        message = f"the key {errors.quoted(key)} is no qualified name; write {_LETTERS}, such as "
        yield Problem(path, f"{message}app or example.com/app")


def _of_finalizers(finalizers: Any) -> Iterator[Problem]:  # noqa: ANN401 - any JSON
    listed = finalizers if isinstance(finalizers, list) else []
    for index, name in enumerate(listed):
        if isinstance(name, str) and not _QUALIFIED_NAME.fullmatch(name):
            message = f"{errors.quoted(name)} is no qualified name; write {_LETTERS}, such as "
            yield Problem(f"metadata.finalizers[{index}]", f"{message}example.com/cleanup")
    if "orphan" in listed and "foregroundDeletion" in listed:
        message = "orphan and foregroundDeletion exclude each other; write one of them"
        yield Problem("metadata.finalizers", message)


def _wrong_name(kind: str, name: Any, prefix: Any) -> str:  # noqa: ANN401 - any JSON
    if name in (None, ""):
        return "" if isinstance(prefix, str) and prefix else "is missing; write a name"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{errors.quoted(name)}: write lower-case letters, digits, - and ."
    longest, why = _LONGEST_NAMES.get(kind, _LONGEST_NAME)
    if len(name) > longest:
        return f"has {len(name)} characters; write at most {longest}, {why}"
    return ""
