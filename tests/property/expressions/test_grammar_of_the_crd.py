"""The rules of the CRD and the engine accept the same texts, text by text.

The rules are the ones that the API server gets, evaluated by cel-python with two functions that
Kubernetes adds to CEL. The same texts go to a real API server in
tests/integration/crds/test_grammar_and_engine.py, fewer of them.
"""

from __future__ import annotations

import functools
import re
from random import Random

import celpy
import celpy.celtypes
import pytest

from duepoint import errors
from duepoint.expressions import compile_expression, timezones
from tests.property.expressions import generators
from tests.support import oddtexts
from tools.jobschema import expand, expression_rules

#: What the engine alone can judge, as semantics.md lists it: reasons, and words of its messages.
ENGINE_ONLY_REASONS = {"NeverFires", "OutOfRange"}
ENGINE_ONLY = re.compile(
    r"@at: .* does not exist|@every: .*"
    r"(is too short|whole number of milliseconds|finer than a microsecond)"
)


def engine_refuses(text: str) -> errors.InvalidExpression | None:
    try:
        compile_expression(text, identity="team/nightly", anchor_us=1, from_us=1)
    except errors.InvalidExpression as error:
        return error
    return None


def is_left_to_the_engine(error: errors.InvalidExpression) -> bool:
    return error.reason in ENGINE_ONLY_REASONS or bool(ENGINE_ONLY.match(str(error)))


def crd_refuses(text: str) -> list[str]:
    """Messages of the rules that do not hold."""
    if len(text) > 200:
        return ["maxLength"]
    value = {"self": celpy.celtypes.StringType(text)}
    return [message for message, program in _programs() if not program.evaluate(value)]


@functools.cache
def _programs() -> list[tuple[str, celpy.Runner]]:
    environment = celpy.Environment(annotations={"self": celpy.celtypes.StringType})
    functions = {"findAll": _find_all, "matches": _matches, "split": _split}
    return [
        (rule["message"], environment.program(environment.compile(rule["rule"]), functions))
        for rule in expression_rules.expression_rules()
    ]


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    """RE2's $ is the very end; a line end before it does not count."""
    return re.compile(re.sub(r"\$(?=$|\))", r"\\Z", text), re.ASCII)


def _matches(text: str, pattern: str) -> celpy.celtypes.BoolType:
    return celpy.celtypes.BoolType(_pattern(str(pattern)).search(str(text)) is not None)


def _find_all(text: str, pattern: str) -> celpy.celtypes.ListType:
    found = [each.group() for each in _pattern(str(pattern)).finditer(str(text))]
    return celpy.celtypes.ListType([celpy.celtypes.StringType(each) for each in found])


def _split(text: str, separator: str) -> celpy.celtypes.ListType:
    return celpy.celtypes.ListType(
        [celpy.celtypes.StringType(each) for each in str(text).split(str(separator))]
    )


@pytest.mark.parametrize("part", range(4))
def test_what_the_crd_accepts_the_engine_accepts_and_the_other_way_round(part):
    rng, accepted, refused = Random(f"crd {part}"), 0, 0
    for text in oddtexts.any_texts(rng, generators.samples(400)):
        error, messages = engine_refuses(text), crd_refuses(text)
        if error is None:
            accepted += 1
            assert messages == [], text
        elif not is_left_to_the_engine(error):
            refused += 1
            assert messages, (text, str(error))
    assert min(accepted, refused) > 80


def test_one_mistake_is_one_message():
    for text in (
        "61 * * * *",
        "5-3 * * * *",
        "*/0 * * * *",
        ", * * * *",
        "*/99 * * * *",
        "@x",
        "@at x",
    ):
        assert len(crd_refuses(text)) == 1, text


def test_both_know_the_same_zones():
    [_, rule] = expand.time_zone_rules()
    listed = re.findall(r"'([^']+)'", rule["rule"].rpartition("self in ")[2])
    assert set(listed) == timezones.known_names()
