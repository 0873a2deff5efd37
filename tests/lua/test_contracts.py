"""What every script's file promises by its form."""

from __future__ import annotations

import re

import pytest

from duepoint.delayqueue.wire import scripting

SCRIPTS = scripting.names()
#: These make room or end work: a full server must let them through. The others need memory.
DRAINING = {
    *("alone", "beat", "claim", "collect", "collecttexts", "extend", "plan", "release", "remove"),
    "settle",
    "withdraw",
    "purge",
    *("compared", "endoubt"),
    *("import", "adopt", "forget", "moves", "rebury", "close", "filled", "progress"),
    *("init", "open", "stay"),  # whoever has just become the leader deletes, too
    *("admit", "finish", "vouch"),  # without them nothing of such a schedule drains
    "circuits",  # bounded, and it ends what it began
}
WITHOUT_SHARD = {
    "append",
    "enlist",
    "prepare",
    "beat",
    "circuits",
    "open",
    "stay",
    "rights",
    "compact",
    "ask",
    "announce",
    "progress",
}


def _file(name):
    from importlib import resources

    folder = resources.files("duepoint.delayqueue") / "scripts"
    return (folder / f"{name}.lua").read_text()


def _body_of(name):
    body = _file(name).partition("]]")[2]
    of_another = re.search(r"^-- body (\w+)$", body, re.MULTILINE)
    return _body_of(of_another[1]) if of_another else body


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_opens_with_its_contract(name):
    header = re.match(r"#!lua.*\n--\[\[\n(.*?)\]\]", _file(name), re.DOTALL)
    assert header, "no header"
    for part in ("KEYS", "ARGV", "Reply"):
        assert re.search(rf"^  {part}", header[1], re.MULTILINE), f"says nothing of {part}"


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_drains_may_run_on_a_full_server_and_nothing_else_may(name):
    first = _file(name).splitlines()[0]
    assert ("allow-oom" in first) == (name in DRAINING)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_a_shard_reads_meta_before_it_writes(name):
    text = scripting.source(name)
    code = text[text.index("]]") :]
    if name in WITHOUT_SHARD:
        assert "refusal(" not in code
        return
    body = _body_of(name)
    checked = re.search(r"= (fenced_)?refusal\(META\)", body)
    written = re.search(r"redis\.call\('[XZH](ADD|SET|REM|DEL)", body)
    assert checked
    assert (
        name == "init"
        or written is None
        or "local function" in body
        or (checked.start() < written.start())
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_the_name_of_a_key(name):
    calls = re.findall(r"redis\.call\('(\w+)', ([^,)]+)", scripting.source(name))
    assert calls or name == "rights"  # which calls nothing
    for command, first in calls:
        if command not in {"TIME", "XGROUP", "INFO", "OBJECT"}:
            assert re.fullmatch(r"[A-Za-z_.\[\] +\d]+", first.strip()), (command, first)


def test_an_unknown_include_is_a_mistake_of_ours():
    with pytest.raises(FileNotFoundError):
        scripting._INCLUDE.sub(
            lambda match: (_ for _ in ()).throw(FileNotFoundError(match[1])), "-- include nothing"
        )
