"""What the Job's API server would refuse of a template though each field by itself is right.

These checks compare fields with each other, which the schema and the rules of the CRD cannot do at
a bounded cost; the operator learns of such mistakes by its dry run. Each of them is refused by
every supported Kubernetes. Values of a wrong type are skipped, because structure.py reports them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from duepoint import errors
from duepoint.cli.check.manifests import Problem

_JOB = "spec.jobTemplate.spec"
_POD = f"{_JOB}.template.spec"
_QUANTITY = re.compile(
    r"\+?(?P<number>\d+\.?\d*|\.\d+)(?:(?P<unit>[KMGTPE]i|[numkMGTPE])|[eE](?P<power>[+-]?\d{1,3}))?",
    re.ASCII,
)
_UNITS = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}  # fmt: skip


def problems(spec: dict[str, Any]) -> Iterator[Problem]:
    """What is wrong with the jobTemplate of a Schedule's spec; nothing where it has none."""
    job = _mapping(_mapping(spec.get("jobTemplate")).get("spec"))
    pod = _mapping(_mapping(job.get("template")).get("spec"))
    if job.get("podFailurePolicy") is not None and pod.get("restartPolicy") == "OnFailure":
        yield Problem(
            path=f"{_JOB}.podFailurePolicy",
            message="needs restartPolicy: Never in the Pod's spec",
        )
    volumes = {each.get("name") for each in _mappings(pod.get("volumes"))}
    names: set[str] = set()
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(_mappings(pod.get(kind))):
            path = f"{_POD}.{kind}[{index}]"
            yield from _of_name(container, names, path)
            yield from _of_mounts(container, volumes, path)
            yield from _of_resources(container, path)


def _of_name(container: dict[str, Any], names: set[str], path: str) -> Iterator[Problem]:
    name = container.get("name")
    if isinstance(name, str):
        if name in names:
            yield Problem(path=f"{path}.name", message=f"{errors.quoted(name)} is there twice")
        names.add(name)


def _of_mounts(container: dict[str, Any], volumes: set[str | None], path: str) -> Iterator[Problem]:
    for index, mount in enumerate(_mappings(container.get("volumeMounts"))):
        name = mount.get("name")
        if isinstance(name, str) and name not in volumes:
            yield Problem(
                path=f"{path}.volumeMounts[{index}].name",
                message=f"{errors.quoted(name)}: there is no volume of that name in volumes",
            )


def _of_resources(container: dict[str, Any], path: str) -> Iterator[Problem]:
    resources = _mapping(container.get("resources"))
    limits = _mapping(resources.get("limits"))
    for name, request in _mapping(resources.get("requests")).items():
        wanted, most = _amount(request), _amount(limits.get(name))
        if wanted is not None and most is not None and wanted > most:
            yield Problem(
                path=f"{path}.resources.requests.{name}",
                message=f"{request} is more than the limit of {limits[name]}",
            )


def _amount(value: Any) -> Decimal | None:  # noqa: ANN401 - any JSON
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    parts = _QUANTITY.fullmatch(str(value))
    if parts is None:
        return None
    unit = _UNITS[parts["unit"]] if parts["unit"] else Decimal(10) ** int(parts["power"] or 0)
    return Decimal(parts["number"]) * unit


def _mapping(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON
    return [_mapping(each) for each in value] if isinstance(value, list) else []
