"""What the form of every script's file promises."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from duepoint.delayqueue.wire import scripting

SCRIPTS = scripting.names()
FOLDER = resources.files("duepoint.delayqueue") / "scripts"
#: What a script has to include, by the first of its keys, before it writes.
CHECKS = {"meta": "shard", "layout": "layout"}
#: Scripts of keys that belong to no shard and to no layout, and one that only reads.
WITHOUT_CHECK = {
    *("append", "circuits", "compact", "enlist", "prepare"),
    *("request", "requestdone", "rights", "takechanges", "readmembers"),
}
#: Writes to several shards, and asks each for itself.
CHECK_EACH_PART = {"put", "drop"}
#: Makes the shard that every other script asks about.
MAKES_SHARD = {"init"}
WRITES = re.compile(
    r"redis\.call\('(?:X(?:ADD|DEL|TRIM)|Z(?:ADD|REM\w*|INCRBY)|H(?:SET|SETNX|DEL|INCRBY)"
    r"|S(?:ADD|REM|ET)|DEL|UNLINK|INCR\w*|P?EXPIRE\w*|RENAME|PUBLISH)'"
)
#: Commands whose first argument is no key.
KEYLESS = {"TIME", "INFO", "OBJECT"}
#: Names that every script finds on a server.
GIVEN = {
    *("KEYS", "ARGV", "assert", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "type"),
    *("unpack", "function"),
}
RAISED = re.compile(r"error_reply\('([A-Z]+)")


def _header(name):
    header = re.match(
        r"#!lua.*\n--\[\[\n(.*?)\]\]\n", (FOLDER / f"{name}.lua").read_text(), re.DOTALL
    )
    assert header, "no header"
    return header[1]


def _own_code(name):
    """Without its header and its includes."""
    code = (FOLDER / f"{name}.lua").read_text().partition("\n]]\n")[2]
    of_another = re.search(r"^-- body (\w+)$", code, re.MULTILINE)
    return _own_code(of_another[1]) if of_another else code


def _errors(name):
    stated = re.search(r"^  Error (.*(?:\n .*)*)", _header(name), re.MULTILINE)
    return set(re.findall(r"\b[A-Z]{3,}\b", stated[1] if stated else ""))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_opens_with_its_contract(name):
    for part in ("ARGV", "Reply"):
        assert re.search(rf"^  {part}", _header(name), re.MULTILINE), f"says nothing of {part}"
    assert scripting.fixed_keys(name) or "  KEYS" in _header(name), "says nothing of KEYS"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_a_full_server_refuses_says_so(name):
    first = (FOLDER / f"{name}.lua").read_text().splitlines()[0]
    assert ("OOM" in _errors(name)) == (first == "#!lua")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_names_the_errors_that_it_raises_beside_those_of_its_includes(name):
    assert set(RAISED.findall(_own_code(name))) <= _errors(name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_knows_its_shard_or_layout_before_it_writes(name):
    code = _own_code(name)
    first_key, *_ = (*scripting.fixed_keys(name), "")
    check = CHECKS.get(first_key)
    assert (check is None) == (name in WITHOUT_CHECK | CHECK_EACH_PART)
    assert ("-- include shardcheck" in code) == (name in CHECK_EACH_PART)
    assert re.findall(r"^-- include (shard|layout)$", code, re.MULTILINE) == (
        [check] if check else []
    )
    written = WRITES.search(code)
    if check and written and name not in MAKES_SHARD:
        assert code.index(f"-- include {check}") < written.start()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_every_name_that_its_includes_use(name):
    code = re.sub(r"--.*|'[^']*'", "", scripting.source(name).partition("\n]]\n")[2])
    used = set(re.findall(r"\b[A-Z][A-Z_]+\b", code))  # keys and constants
    used |= set(re.findall(r"(?<![.\w])([a-z_]+)\(", code))  # functions
    own = re.findall(r"\blocal (?:function )?([\w, ]+)|\bfunction\(([\w, ]*)\)", code)
    declared = {word for match in own for word in re.findall(r"\w+", " ".join(match))}
    assert used - declared <= GIVEN


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_the_name_of_a_key(name):
    for command, first in re.findall(r"redis\.call\('(\w+)', ([^,)]+)", scripting.source(name)):
        if command not in KEYLESS:
            assert re.fullmatch(r"[A-Za-z_.\[\] +\d]+", first.strip()), (command, first)


def test_an_unknown_include_is_a_mistake_of_ours(monkeypatch, tmp_path):
    (tmp_path / "some.lua").write_text("#!lua\n-- include nothing\n")
    monkeypatch.setattr(scripting, "_FOLDER", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nothing\.lua"):
        scripting.source("some")
