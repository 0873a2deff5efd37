"""What `duepoint validate` says of metadata and of a Job's template is what an API server says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.crds import kubeapi
from tests.integration.crds.manifests import a_schedule
from tests.unit.cli.test_validate import (
    BAD_METADATA,
    BAD_TEMPLATES,
    GOOD_TEMPLATES,
)

JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "namespace": "default"}}


def _is_taken(api: kubeapi.KubeApi, template: dict[str, Any]) -> bool:
    """By the CRD, and as a Job by the strict dry run that the operator makes."""
    schedule = api.create(a_schedule("x", jobTemplate=template), dry_run=True)
    metadata = {**JOB["metadata"], **template.get("metadata", {})}
    job = api.create({**JOB, **template, "metadata": metadata}, dry_run=True)
    assert {schedule.code, job.code} <= {201, 400, 422}, (schedule.body, job.body)
    return schedule.ok and job.ok


@pytest.mark.parametrize("template", [template for template, _, _ in BAD_TEMPLATES])
def test_a_template_that_validate_calls_wrong_is_refused(
    api: kubeapi.KubeApi, template: dict[str, Any]
) -> None:
    assert not _is_taken(api, template)


@pytest.mark.parametrize("template", GOOD_TEMPLATES)
def test_a_template_that_validate_calls_right_is_taken(
    api: kubeapi.KubeApi, template: dict[str, Any]
) -> None:
    assert _is_taken(api, template)


def _created(api: kubeapi.KubeApi, metadata: dict[str, Any]) -> kubeapi.Answer:
    schedule = a_schedule("x")
    schedule["metadata"].update(metadata)
    return api.create(schedule, dry_run=True)


@pytest.mark.parametrize("metadata", [metadata for metadata, _, _ in BAD_METADATA])
def test_metadata_that_validate_calls_wrong_is_refused(
    api: kubeapi.KubeApi, metadata: dict[str, Any]
) -> None:
    answer = _created(api, metadata)
    assert answer.code in (400, 422), answer.body
