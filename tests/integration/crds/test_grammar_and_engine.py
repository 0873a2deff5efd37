"""The rules of the CRD on a real API server and the engine accept the same texts.

Texts at the edge of the grammar, made with a fixed seed, are sent 32 at a time in one Schedule; the
causes of the answer name the refused ones. What the engine refuses and the API server cannot see
needs a calendar or arithmetic, and is listed in docs/reference/semantics.md.
"""

from __future__ import annotations

import re
from random import Random

import pytest

from duepoint import errors
from duepoint.expressions import compile_expression, timezones
from tests.integration.crds import kubeapi
from tests.integration.crds.manifests import ABSENT, a_schedule
from tests.integration.crds.rejected import EXPRESSIONS as REJECTED
from tests.integration.crds.test_accepted_objects import EXPRESSIONS as ACCEPTED
from tests.support import oddtexts

WANTED = 2_400
PER_OBJECT = 32
#: What the engine alone can judge, as semantics.md lists it, beside that a text never fires.
ENGINE_ONLY = re.compile(
    r"@at: .* does not exist|@every: .*"
    r"(is too short|whole number of milliseconds|finer than a microsecond)"
    r"|.*(the years? (1970 to )?2112|any calendar|has an exponent)"
)


def engine_refuses(text: str) -> errors.InvalidExpression | None:
    try:
        compile_expression(text, identity="team/nightly", anchor_us=1, from_us=1)
    except errors.InvalidExpression as error:
        return error
    return None


def is_left_to_the_engine(error: errors.InvalidExpression) -> bool:
    return error.never_fires or bool(ENGINE_ONLY.match(str(error)))


def _refused(api: kubeapi.KubeApi, texts: list[str]) -> set[str]:
    """The texts that the API server refuses."""
    answer = api.create(a_schedule("odd", schedule=ABSENT, schedules=texts), dry_run=True)
    assert answer.ok or answer.code == 422, answer.body
    causes = [] if answer.ok else answer.causes()
    assert all("spec.schedules[" in field for field, _ in causes), causes
    assert not any("evaluating rule" in message for _, message in causes), causes
    return {texts[int(re.findall(r"[0-9]+", field)[0])] for field, _ in causes}


@pytest.mark.timeout(600)
def test_the_api_server_and_the_engine_accept_the_same_texts(api: kubeapi.KubeApi) -> None:
    rng, wrong = Random("real"), []
    texts = [text for text in oddtexts.any_texts(rng, WANTED) if len(text) <= 200]
    for begin in range(0, len(texts), PER_OBJECT):
        some = texts[begin : begin + PER_OBJECT]
        refused = _refused(api, some)
        for text in some:
            error = engine_refuses(text)
            if error is None and text in refused:
                wrong.append((text, "refused by the API server alone"))
            elif error and not is_left_to_the_engine(error) and text not in refused:
                wrong.append((text, str(error)))
    assert wrong == []


def test_the_api_server_counts_the_characters_of_a_text_as_the_engine_does(
    api: kubeapi.KubeApi,
) -> None:
    for text in ("0 2 * * *" + " " * 191, "0 2 * * *" + " " * 191 + "\n"):
        answer = api.create(a_schedule("long", schedule=text), dry_run=True)
        assert answer.ok == (engine_refuses(text) is None)


def test_the_api_server_takes_every_zone_that_the_engine_has(api: kubeapi.KubeApi) -> None:
    refused = [
        zone
        for zone in sorted(timezones.known_names())
        if not api.create(a_schedule("zone", timeZone=zone), dry_run=True).ok
    ]
    assert refused == []


@pytest.mark.parametrize("text", ACCEPTED)
def test_the_engine_understands_what_is_accepted(text: str) -> None:
    assert engine_refuses(text) is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(case.thing["spec"]["schedule"], id=case.id)
        for case in REJECTED
        if isinstance(case.thing["spec"].get("schedule"), str)
        and "schedules" not in case.thing["spec"]
    ],
)
def test_the_engine_refuses_what_is_rejected(text: str) -> None:
    assert engine_refuses(text) is not None
