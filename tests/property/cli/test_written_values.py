"""Whatever a manifest may hold is read back as it was written."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from duepoint.cli.check import manifests
from duepoint.cli.cronjob import conversion

_TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(
        st.sampled_from(
            ["on", "y", "1e3", "0o17", "0777", "12:30", "null", "~", "- a", "a: b", "#x", " #b",
             "@x", "%a", "*/5", "&a", "!x", "|", "? a", ".inf", "\n", "\t", "\x85", "\r\n", "\x00",
             "---", "...", "'", '"', "\\", "{}", "[", " "]
        )
    ).map("".join),
)  # fmt: skip
_VALUES = st.recursive(
    st.one_of(_TEXTS, st.none(), st.booleans(), st.integers(-(2**63), 2**63)),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(_TEXTS, inner)),
    max_leaves=12,
)


@given(st.dictionaries(_TEXTS, _VALUES, min_size=1))
def test_every_value_survives_being_written(value):
    text = conversion.text_of(value)
    (document,) = manifests.documents(text.encode())
    assert not isinstance(document, manifests.InvalidText)
    assert document == value
    assert yaml.safe_load(text) == value
