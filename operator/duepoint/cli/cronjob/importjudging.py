"""Each object of a file or cluster to the Schedule that it becomes, or to what is wrong with it.

In: manifests as they were read. Out: one ``Imported`` for each CronJob, None for an object of
another kind. A Schedule that comes out has been judged as ``duepoint validate`` judges it, so that
what is printed is what the API server takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from duepoint import errors
from duepoint.cli.check import checks
from duepoint.cli.check.manifests import Manifest, Problem, Unreadable
from duepoint.cli.cronjob import importcronjobs, porting


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
    ported = importcronjobs.ported(
        source.content, namespace=given.namespace, time_zone=given.time_zone
    )
    if not _is_text(ported.content):
        return _refused(source, "", "holds half a character; write UTF-8")
    made = Manifest(
        file=source.file, document=source.document, item=source.item, content=ported.content
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
    differences = porting.notes(ported.content, judged.spec, given.now_us)
    notes = (*ported.notes, *judged.problems, *differences)
    return Imported(source=source, schedule=ported.content, notes=notes)


def _is_text(content: dict[str, Any]) -> bool:
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(source: Manifest, path: str, message: str) -> Imported:
    return Imported(source=source, problems=(Problem(path=path, message=message),))
