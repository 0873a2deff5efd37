"""Plain values to YAML that every reader of Kubernetes manifests takes for the same values.

Readers differ in what they make of a bare word: ``on``, ``y``, ``1e3``, ``0o17`` or ``12:30`` are a
boolean, a number or a text depending on whom one asks. So a text stands bare only where it begins
with a letter and is no such word; everything else is quoted. No aliases, no folding, keys in their
own order, texts of several lines as blocks where YAML allows it.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_BARE = re.compile(r"[A-Za-z/][A-Za-z0-9_./@=+-]*(?::[A-Za-z0-9_./@=+-]+)*", re.ASCII)
_WORDS = frozenset(
    "y n yes no on off true false null nan inf infinity".split()  # noqa: SIM905 - a list of words
)
#: Wider than any line, so that nothing is folded.
_WIDTH = 1 << 20


def text_of(value: object) -> str:
    """One document, without ``---`` and with a line break at its end."""
    written: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH
    )
    return written


class _Dumper(_Base):  # type: ignore[misc]
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
        return True


def _text(dumper: Any, text: str) -> Any:  # noqa: ANN401 - yaml's own types
    if "\n" in text:
        style = "|"  # yaml itself falls back to quotes where a block could not hold it
    elif _BARE.fullmatch(text) and text.lower() not in _WORDS:
        style = None
    else:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
