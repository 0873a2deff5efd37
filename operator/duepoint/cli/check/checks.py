"""Checks a manifest: returns its problems, and the spec that operator and worker would act on.

There are three checks, in the same order as in a cluster: the object around the spec (by the rules
of ``k8s.io/apimachinery``), the schema of the CRD (structure.py), and the function with which the
operator accepts a spec (``parse`` of ``schedules.spec`` and of ``schedules.sets.setspec``). A
problem that one of them has reported is not reported again; all others are reported. A CronJob is
checked as the Schedule that it becomes by changing ``apiVersion`` and ``kind``.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint import errors, expressions
from duepoint.cli import instants
from duepoint.cli.check import manifests, structure
from duepoint.cli.check.manifests import Manifest, text
from duepoint.expressions import durations, timezones
from duepoint.kube import schedules
from duepoint.model.checks import MISSING, Problem
from duepoint.model.vocabulary import mapping
from duepoint.schedules import rule as rules
from duepoint.schedules import spec as specs
from duepoint.schedules.sets import setspec

#: API groups of Kubernetes itself, which contain none of our kinds.
_KUBERNETES = ("batch/", "apps/")

_UID = "00000000-0000-4000-8000-000000000000"

CRONJOB = "CronJob"
CRONJOB_VERSIONS = ("batch/v1", "batch/v1beta1")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedManifest:
    """A manifest of one of our kinds, or a CronJob, with its problems and notes.

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
            manifest, "", "is not a Kubernetes object; write apiVersion, kind, metadata and spec"
        )
    kind, version = manifest.kind, manifest.api_version
    if kind == CRONJOB and version in CRONJOB_VERSIONS:
        kind = "Schedule"
    elif kind not in structure.schemas() or version != manifests.API_VERSION:
        wrong = _misnamed(kind, version)
        return _wrong(manifest, *wrong) if wrong else None
    content = manifest.content
    metadata = mapping(content.get("metadata"))
    with contextlib.suppress(ValueError):
        created_us = instants.strict_us(text(metadata.get("creationTimestamp")))
    walk = structure.Walk(_readers(mapping(content.get("spec")), created_us))
    walk.check(structure.schemas()[kind], content, "")
    found = walk.found
    if isinstance(content.get("metadata"), dict):
        found += _of_metadata(kind, metadata)
    if not isinstance(content.get("spec"), dict):
        return CheckedManifest(manifest=manifest, problems=tuple(found))
    misspelt_in = {each.path.rpartition(".")[0] for each in found if each.is_misspelt}
    spec, more = _parsed(kind, content, namespace=namespace, created_us=created_us)
    known = misspelt_in | {problem.path for problem in found if not problem.is_note}
    found += [
        problem
        for problem in more
        if not _is_reported(problem.path, known)
        and not (problem.message == MISSING and problem.path.rpartition(".")[0] in misspelt_in)
    ]
    known = {problem.path for problem in found if not problem.is_note}
    found += [problem for problem in _of_job(content["spec"]) if problem.path not in known]
    is_valid = all(problem.is_note for problem in found)
    return CheckedManifest(
        manifest=manifest, problems=tuple(found), spec=spec if is_valid else None
    )


def _misnamed(kind: str, version: str) -> tuple[str, str] | None:
    """Return the problem of a kind or version that resembles one of ours; None for others."""
    known = structure.schemas()
    if version.startswith(manifests.API_VERSION.partition(".")[0]):
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


# -- as the operator reads it ----------------------------------------------------------------


def _parsed(
    kind: str, content: dict[str, Any], *, namespace: str, created_us: int
) -> tuple[specs.ScheduleSpec | None, list[Problem]]:
    metadata = mapping(content.get("metadata"))
    try:
        # As compact as the API server writes it, because the size of a payload is limited.
        raw = json.dumps(
            content["spec"], allow_nan=False, ensure_ascii=False, separators=(",", ":")
        ).encode()
        if kind == schedules.RUN_KIND:
            schedules.wanted(raw, created_us=created_us)
            return None, []
        parse: Callable[..., Any] = setspec.parse if kind == schedules.SET_KIND else specs.parse
        spec = parse(
            raw,
            namespace=text(metadata.get("namespace")) or namespace,
            name=text(metadata.get("name")) or text(metadata.get("generateName")),
            uid=text(metadata.get("uid")) or _UID,
            generation=1,
            created_us=created_us,
        )
        return spec if isinstance(spec, specs.ScheduleSpec) else None, []
    except errors.InvalidSpec as error:
        return None, [Problem(each.path, each.message) for each in error.errors]
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        # JSON cannot represent it: an infinite number, or half of a surrogate pair.
        return None, [Problem("spec", f"cannot be written as JSON: {error}")]


def _readers(spec: Mapping[str, Any], created_us: int) -> structure.Readers:
    """Return the engine's readers; the operator checks expressions only if all else is valid."""
    zone = text(spec.get("timeZone"))
    if zone not in timezones.known_names():
        zone = rules.DEFAULT_ZONE
    compiled = functools.partial(
        expressions.compile_expression, time_zone=zone, anchor_us=created_us, from_us=created_us
    )
    return {
        "expression": compiled,
        "timeZone": timezones.load,
        "duration": durations.parse_duration_us,
    }


def _is_reported(path: str, reported: set[str]) -> bool:
    """Whether the field has a reported problem, or a part of it has, if it is not the spec."""
    parts = (f"{path}.", f"{path}[")
    return path in reported or (path != "spec" and any(each.startswith(parts) for each in reported))


def _of_job(spec: dict[str, Any]) -> Iterator[Problem]:
    """Yield the problems of the jobTemplate in a Schedule's spec, if it has one."""
    template = mapping(spec.get("jobTemplate"))
    job = mapping(template.get("spec"))
    pod_template = mapping(job.get("template"))
    pod = mapping(pod_template.get("spec"))
    for path, each in (("spec.jobTemplate", template), (f"{structure.JOB}.template", pod_template)):
        yield from _labels_and_annotations(mapping(each.get("metadata")), f"{path}.metadata")
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


def _mappings(value: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401 - any JSON
    return [mapping(each) for each in value] if isinstance(value, list) else []


# -- metadata, by ValidateObjectMeta, IsQualifiedName and IsValidLabelValue ----------


#: The name of a Job has eleven more characters for its slot, and at most 63.
_LONGEST_NAME = (52, "because each Job's name carries 11 more for its slot and ends at 63")
#: The limits of kinds whose names are not part of Jobs' names.
_LONGEST_NAMES = {"ScheduleSet": (63, "because the name is the value of a label")}
#: The most bytes of all annotations, keys and values together.
_MOST_ANNOTATION_BYTES = 256 * 1024


def _of_metadata(kind: str, metadata: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what the API server would refuse in the name, labels and annotations of an object."""
    name, (longest, why) = metadata.get("name"), _LONGEST_NAMES.get(kind, _LONGEST_NAME)
    if name in (None, ""):
        if not metadata.get("generateName"):
            yield Problem("metadata.name", "is missing; write a name")
    elif not isinstance(name, str) or not re.fullmatch(structure.DNS_NAME, name):
        message = f"{errors.quoted(name)}: write lower-case letters, digits, - and ."
        yield Problem("metadata.name", message)
    elif len(name) > longest:
        message = f"has {len(name)} characters; write at most {longest}, {why}"
        yield Problem("metadata.name", message)
    yield from _labels_and_annotations(metadata, "metadata")


def _labels_and_annotations(metadata: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield wrong labels and annotations of an object's or a template's metadata."""
    labels, annotations = (mapping(metadata.get(name)) for name in ("labels", "annotations"))
    # The API server accepts capitals in the prefix of an annotation.
    keys = [("labels", key, key) for key in labels]
    keys += [("annotations", key, key.lower()) for key in annotations]
    for where, key, name in keys:
        if not structure.QUALIFIED_NAME.fullmatch(name):
            yield Problem(
                f"{path}.{where}",
                f"the key {errors.quoted(key)} is not a qualified name; write {structure.LETTERS}, "
                "such as app or example.com/app",
            )
    for key, value in labels.items():
        if isinstance(value, str) and not structure.LABEL_VALUE.fullmatch(value):
            message = (
                f"{errors.quoted(value)} is not a valid label value; write {structure.LETTERS}"
            )
            yield Problem(f"{path}.labels.{key[:64]}", message)
    texts = (text for pair in annotations.items() for text in pair if isinstance(text, str))
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if size > _MOST_ANNOTATION_BYTES:
        message = f"have {size} bytes in all; at most {_MOST_ANNOTATION_BYTES} are taken"
        yield Problem(f"{path}.annotations", message)
