"""The page of the HTTP API is what the OpenAPI document gives."""

from __future__ import annotations

from duepoint.httpapi import openapi, operations
from tools import httpapidoc


def test_the_page_is_current():
    assert httpapidoc.PAGE.read_text() == httpapidoc.page()


def test_a_stale_page_is_reported_and_not_touched(tmp_path, monkeypatch, capsys):
    stale = tmp_path / "http-api.md"
    stale.write_text("old")
    monkeypatch.setattr(httpapidoc, "PAGE", stale)
    assert httpapidoc.main(["--check"]) == 1
    assert stale.read_text() == "old"
    assert "tools.httpapidoc" in capsys.readouterr().err


def test_every_operation_has_a_section_and_every_field_of_a_body_a_row():
    text = httpapidoc.PAGE.read_text()
    for operation in operations.OPERATIONS:
        assert f"### `{operation.method} {operations.BASE}{operation.path}`" in text
        if operation.body and operation.body != "MemberPatch":
            for name, field in openapi.SCHEMAS[operation.body]["properties"].items():
                assert field.get("readOnly") or f"| `{name}` |" in text
