"""What the API server takes as a CronJob `import` takes, and what `validate` calls valid it takes.

Generated manifests (mutations.py) are judged by `kubectl create --dry-run=server`, which is strict,
by `duepoint validate` and by `duepoint import cronjob`. They differ only where
docs/howto/port-a-cronjob.md says so: `is_listed`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from duepoint import cli
from duepoint.cli.check import manifests
from tests.integration.crds import mutations
from tests.integration.crds.mutations import Case
from tests.integration.crds.test_imported_cronjobs import KUBECTL
from tests.property.expressions import generators

#: DUEPOINT_SAMPLES_FACTOR=25 judges 3,000, DUEPOINT_SAMPLES_SEED=text other ones.
WANTED = 120
#: What a cluster takes and `validate` and `import` refuse, by their words.
LISTED = re.compile(
    r"is not a field of a Job"
    r"|the key \".*\" is there twice"
    r"|has no time in the next 8 years"
    r"|\]: is null; write"
    r"|jobTemplate\.metadata\.(labels|annotations)"
    # the API server takes a list for a time, and the operator does not
    r"|Time: a list is of the wrong type"
)


def run(*arguments: str, given: str = "") -> tuple[str, str]:
    result = CliRunner().invoke(cli.commands, arguments, input=given)
    assert result.exit_code in (0, 2), result.stderr
    return result.stdout, result.stderr


class Kubectl:
    """What the API server says to a dry run of each file."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._command = [
            KUBECTL, "--kubeconfig", str(kubeconfig), "create", "--dry-run=server",
            "--validate=strict", "-n", namespace, "-o", "name", "-f",
        ]  # fmt: skip

    def taken(self, folder: Path) -> set[str]:
        """The names of the objects that are taken, of all files of the folder."""
        done = subprocess.run(
            [*self._command, str(folder)], capture_output=True, text=True, check=False
        )
        (folder.parent / f"{folder.name}.errors").write_text(done.stderr)
        return {line.rpartition("/")[2] for line in done.stdout.splitlines()}


def written(folder: Path, texts: Iterable[tuple[str, str]]) -> Path:
    folder.mkdir()
    for name, text in texts:
        (folder / f"{name}.yaml").write_text(text)
    return folder


def validated(folder: Path) -> dict[str, list[str]]:
    """Name of each file -> its problems."""
    out, _ = run("validate", "-o", "json", str(folder))
    found: dict[str, list[str]] = {}
    for line in out.splitlines():
        row = json.loads(line)
        problems = [f"{each['field']}: {each['message']}" for each in row["problems"]]
        found.setdefault(Path(row["file"]).stem, []).extend(problems)
    return found


def imported(folder: Path) -> tuple[dict[str, str], str]:
    """Name of each CronJob that is ported -> the text of its Schedule; and what is said of all."""
    out, err = run("import", "cronjob", "-f", str(folder))
    made = {}
    for document in out.split("---\n")[1:]:
        file = re.match(r"# (\S+): document", document)
        assert file, document
        made[Path(file[1]).stem] = document
    return made, err


def jobs(cases: Iterable[Case]) -> Iterable[tuple[str, str]]:
    """The Job of each Schedule, as the operator tries it."""
    for case in cases:
        template = _template(case.text)
        if template is not None:
            metadata = {**(template.get("metadata") or {}), "name": case.name}
            job = {"apiVersion": "batch/v1", "kind": "Job", **template, "metadata": metadata}
            yield case.name, json.dumps(job, default=str)


def _template(text: str) -> dict[str, Any] | None:
    try:
        template = next(manifests.documents(text.encode()))["spec"]["jobTemplate"]
    except (KeyError, TypeError):
        return None
    is_job = isinstance(template, dict) and isinstance(template.get("metadata") or {}, dict)
    return template if is_job else None


def is_listed(problems: Iterable[str]) -> bool:
    return any(LISTED.search(problem) for problem in problems)


@pytest.mark.usefixtures("api")
@pytest.mark.timeout(3600)
def test_validate_and_import_agree_with_kubectl(
    kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    kubectl = Kubectl(kubeconfig, namespace)
    cases = list(mutations.cases(generators.chance("manifests"), generators.samples(WANTED)))
    folder = written(tmp_path / "cases", ((case.name, case.text) for case in cases))
    taken, valid = kubectl.taken(folder), validated(folder)
    made, said = imported(folder)
    ported = kubectl.taken(written(tmp_path / "ported", made.items()))
    stalled = [case for case in cases if case.name in taken and case.kind == "Schedule"]
    runnable = kubectl.taken(written(tmp_path / "jobs", jobs(stalled)))
    wrong = []
    for case in cases:
        is_taken, problems = case.name in taken, valid.get(case.name, ["not seen"])
        if case.kind == "CronJob":
            says = [line for line in said.splitlines() if case.name in line]
            if is_taken and case.name not in made and not is_listed(says):
                wrong.append((case, "a CronJob is not imported", says))
            if is_taken and problems and not is_listed(problems):
                wrong.append((case, "a CronJob is not valid", problems))
            if case.name in made and case.name not in ported:
                wrong.append((case, "an imported Schedule is refused", []))
            continue
        if not problems and not is_taken:
            wrong.append((case, "valid and refused", problems))
        has_job = (tmp_path / "jobs" / f"{case.name}.yaml").exists()
        is_stalled = has_job and case.name not in runnable
        if is_taken and problems and not (is_stalled or is_listed(problems)):
            wrong.append((case, "taken and not valid", problems))
    assert taken
    assert len(taken) < len(cases)
    assert not wrong, "\n".join(
        f"{what}: {case.change} ({case.name}) {problems}" for case, what, problems in wrong
    )
