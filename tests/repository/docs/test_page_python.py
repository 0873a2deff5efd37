"""Blocks of Python on the pages that need no server do what their page says.

Those of the HTTP API's client are in tests/e2e, and that of a receiver in tests/process.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519

from duepoint.targets.webhook import signing
from tests.support import pagecommands

HOWTO = pagecommands.ROOT / "docs" / "howto"


def test_keys_of_the_page_sign_and_verify(capsys: pytest.CaptureFixture[str]) -> None:
    _, block = pagecommands.python_of(HOWTO / "sign-and-verify-a-webhook.md")

    exec(block, {})
    private, public = capsys.readouterr().out.split()

    version, _, signature = signing.signer(private).sign(b"text").partition(",")
    key = ed25519.Ed25519PublicKey.from_public_bytes(_decoded(public.removeprefix("whpk_")))
    assert version == "v1a"
    key.verify(_decoded(signature), b"text")
    with pytest.raises(InvalidSignature):
        key.verify(_decoded(signature), b"another")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4))


def test_a_program_of_the_page_continues_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    monkeypatch.setenv("TRACEPARENT", f"00-{trace_id}-00f067aa0ba902b7-01")
    [block] = pagecommands.python_of(HOWTO / "trace-slots.md")
    names: dict[str, Any] = {}

    exec(block.replace("...", "inside = trace.get_current_span()"), names)

    assert names["inside"].get_span_context().trace_id == int(trace_id, 16)
    assert trace.get_current_span().get_span_context().trace_id == 0
