"""What headers and merge patches say, without a server."""

from __future__ import annotations

import types

import pytest

from duepoint.delayqueue.members import values
from duepoint.httpapi import calls, members, ownsets
from duepoint.httpapi.problems import OperationProblem
from duepoint.schedules.sets.members import RowError

#: Examples of RFC 7396, appendix A, by what is patched and by what.
PATCHES = [
    (b'{"a":"b"}', b'{"a":"c"}', b'{"a":"c"}'),
    (b'{"a":"b"}', b'{"b":"c"}', b'{"a":"b","b":"c"}'),
    (b'{"a":"b"}', b'{"a":null}', b"{}"),
    (b'{"a":"b","b":"c"}', b'{"a":null}', b'{"b":"c"}'),
    (b'{"a":["b"]}', b'{"a":"c"}', b'{"a":"c"}'),
    (b'{"a":"c"}', b'{"a":["b"]}', b'{"a":["b"]}'),
    (b'{"a":{"b":"c"}}', b'{"a":{"b":"d","c":null}}', b'{"a":{"b":"d"}}'),
    (b'{"a":[{"b":"c"}]}', b'{"a":[1]}', b'{"a":[1]}'),
    (b'["a","b"]', b'["c","d"]', b'["c","d"]'),
    (b'{"a":"b"}', b'["c"]', b'["c"]'),
    (b'{"a":"foo"}', b"null", b"null"),
    (b'{"e":null}', b'{"a":1}', b'{"e":null,"a":1}'),
    (b"[1,2]", b'{"a":"b","c":null}', b'{"a":"b"}'),
    (b"{}", b'{"a":{"bb":{"ccc":null}}}', b'{"a":{"bb":{}}}'),
]


@pytest.mark.parametrize(("target", "patch", "merged"), PATCHES)
def test_a_merge_patch_is_that_of_the_rfc(target, patch, merged):
    assert members.merge(target, patch) == merged


def call(**headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = types.SimpleNamespace(headers=named)
    return calls.Call(request=request, shared=None, operation=None, caller=None)


@pytest.mark.parametrize(("text", "tag"), [('"1f0a33c2"', "1f0a33c2"), ("*", "*")])
def test_a_condition_has_one_tag_or_any(text, tag):
    assert call(if_match=text).tag("If-Match") == tag


@pytest.mark.parametrize(
    "text", ['"a"', '"1f0a33c2", "1f0a33c3"', 'W/"1f0a33c2"', '""', "1f0a33c2"]
)
def test_what_is_no_tag_is_refused(text):
    with pytest.raises(OperationProblem, match="is not a tag; write it in quotes"):
        call(if_match=text).tag("If-Match")


@pytest.mark.parametrize("outcome", values.Outcome)
def test_a_refusal_keeps_nothing_of_the_request_before(outcome):
    problem = ownsets.problem_of(outcome)
    if problem is None:
        return
    with pytest.raises(OperationProblem):
        raise problem
    again = ownsets.problem_of(outcome)
    assert again is not None
    assert again.__traceback__ is None
    assert (again.code, again.detail, again.field) == (problem.code, problem.detail, problem.field)


def test_a_reason_that_has_no_code_of_its_own_is_not_called_a_wrong_expression():
    row = RowError(code="TargetUnavailable", detail="streams are off", field="stream")
    problem = calls.refused_row(row)
    assert (problem.code, problem.detail) == ("InvalidField", "streams are off")
    assert (problem.field, problem.status) == ("stream", 400)
