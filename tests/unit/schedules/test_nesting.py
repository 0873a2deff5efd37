"""Objects nested more deeply than a decoder follows: cut, refused, and nobody else's trouble."""

from __future__ import annotations

import json

import msgspec
import pytest

from duepoint import errors
from duepoint.kube import port, schedules
from duepoint.schedules import jsontext, spec, specfields


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def a_page(*specs: str) -> bytes:
    items = ",".join(
        f'{{"metadata": {{"name": "s{number}"}}, "spec": {text}}}'
        for number, text in enumerate(specs)
    )
    return f'{{"metadata": {{}}, "items": [{items}]}}'.encode()


def parsed(text: str):
    return spec.parse(text.encode(), namespace="a", name="b", uid="c", generation=1, created_us=0)


@pytest.mark.parametrize("levels", [1_500, 10_000])
def test_a_page_is_read_although_one_object_on_it_is_nested_without_end(levels):
    decoder = msgspec.json.Decoder(port.ListPage[schedules.Schedule])
    page = port.decoded(decoder, a_page('{"x": 1}', nested(levels), '{"y": 2}'), "GET schedules")
    assert [one.metadata.name for one in page.items] == ["s0", "s1", "s2"]
    assert bytes(page.items[0].spec) == b'{"x": 1}'
    assert jsontext.too_deep(bytes(page.items[1].spec)) == "a"


@pytest.mark.parametrize("levels", [jsontext.DEEPEST, 400, 900, 10_000])
@pytest.mark.parametrize("field", ["payload", "jobTemplate"])
def test_a_deep_spec_is_refused_with_its_field(field, levels):
    with pytest.raises(errors.InvalidSpec) as refused:
        parsed(f'{{"schedule": "@daily", "webhook": {{}}, "{field}": {nested(levels)}}}')
    assert f"spec.{field}" in str(refused.value)
    assert "nested deeper than 100 levels" in str(refused.value)


def test_a_deep_payload_of_a_schedulerun_is_refused():
    text = f'{{"scheduleName": "a", "trigger": {{"payload": {nested(2_000)}}}}}'
    with pytest.raises(errors.InvalidSpec, match=r"spec\.trigger"):
        schedules.wanted(text.encode(), created_us=0)


def a_template(size: int) -> str:
    """A jobTemplate whose JSON text has so many bytes."""
    text = json.dumps({"metadata": {"annotations": {"a": ""}}, "spec": {"template": {}}})
    return text.replace('""', '"' + "x" * (size - len(text)) + '"')


def test_a_template_over_its_limit_is_refused_with_its_size():
    limit = specfields.TEMPLATE_LIMIT_BYTES
    parsed(f'{{"schedule": "@daily", "jobTemplate": {a_template(limit)}}}')
    with pytest.raises(errors.InvalidSpec, match=f"has {limit + 1} bytes") as refused:
        parsed(f'{{"schedule": "@daily", "jobTemplate": {a_template(limit + 1)}}}')
    assert [one.reason for one in refused.value.errors] == ["InvalidJobTemplate"]
