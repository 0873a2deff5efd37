"""An API server's words about a Job as words about the ``jobTemplate`` that the Job is made from.

A dry run asks about a Job under the name of one slot; its answer names that Job, which does not
exist, and the Job's own fields. The author of a Schedule wrote ``spec.jobTemplate``, so paths are
given from there, the Job's name is left out, and the answer is the same for all Schedules that were
made from one template. Pure. The texts are those of Kubernetes v1.36; of others only what is
recognized is rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from duepoint.kube import errors

#: A field of the Job, as the API server writes it; not a part of a longer word.
_FIELD = re.compile(r"(?<![\w.])(?P<part>spec|metadata)(?=[.:])")
_HEAD = re.compile(
    r'^(?:(?:Job\.batch|jobs\.batch) "[^"]*" is (?:invalid|forbidden)'
    r'|Job in version "[^"]*" cannot be handled as a Job): '
)
_STRICT = re.compile(r'(?P<what>unknown|duplicate) field "(?P<path>[^"]*)"')
_GO_TYPE = re.compile(
    r"json: cannot unmarshal (?P<written>\S+) into Go struct field \w+\.(?P<path>\S+)"
    r" of type (?P<wanted>\S+)"
)
#: What stands for a Job's name: its Schedule's, and its slot's.
_ANY_NAME = "<name>-<slot>"


def of_invalid(error: errors.Invalid, job_name: str) -> str:
    """What is wrong with which field of the Schedule; several are separated by semicolons."""
    causes = [_of_cause(field, message) for field, message in error.causes if field and message]
    said = causes or list(_of_text(_HEAD.sub("", error.server_message or str(error))))
    text = "; ".join(dict.fromkeys(said)).replace(job_name, _ANY_NAME)
    return text[: errors.MESSAGE_LIMIT]


def of_other(error: errors.ApiError, job_name: str) -> str:
    """Why there is no verdict: the server's words without the Job that does not exist."""
    return _HEAD.sub("", error.server_message or str(error)).replace(job_name, _ANY_NAME)


def _of_cause(field: str, message: str) -> str:
    if field == "metadata.name":
        return f"{field}: {message}; write a shorter name"
    return f"{_below(field)}: {message}"


def _of_text(text: str) -> Iterator[str]:
    """The sentences of the decoder, which names fields inside them."""
    if text.startswith("strict decoding error: "):
        for found in _STRICT.finditer(text):
            says = "is no field of a Job" if found["what"] == "unknown" else "is there twice"
            yield f"{_below(found['path'])}: {says}"
    elif wrong := _GO_TYPE.search(text):
        write = _write(wrong["wanted"])
        yield f"{_below(wrong['path'])}: is a {wrong['written']}; write {write}"
    else:
        yield f"spec.jobTemplate: {_FIELD.sub(lambda found: _below(found['part']), text)}"


def _write(go_type: str) -> str:
    """A type of Go as one would say it of YAML."""
    if go_type.startswith(("int", "uint")):
        return "a whole number"
    words = {"string": "a text", "bool": "true or false", "[": "a list", "m": "a mapping"}
    return words.get(go_type) or words.get(go_type[0]) or "a mapping"


def _below(field: str) -> str:
    return f"spec.jobTemplate.{field}"
