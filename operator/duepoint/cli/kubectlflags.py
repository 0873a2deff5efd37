"""Flags with values, as kubectl takes them: ``--all=true``, ``--dry-run=client``.

A flag here is there or it is not. ``plain`` writes the values of kubectl so before click reads
them; a flag that is set to false is left out, or becomes its opposite (``--wait=false``).
"""

from __future__ import annotations

import click

#: What kubectl lets a flag be set to; of these the second means that it is left out.
_SET, _UNSET = frozenset({"true", "client", "server"}), frozenset({"false", "none"})


def plain(command: click.Command, args: list[str]) -> list[str]:
    """The arguments with flags as click has them: ``--all=true`` and ``--dry-run=client``."""
    if isinstance(command, click.Group):
        first = next((each for each in args if not each.startswith("-")), "")
        command = command.commands.get(first, command)
    flags = {
        option: (param.secondary_opts or [""])[0]
        for param in command.params
        if isinstance(param, click.Option) and param.is_flag
        for option in param.opts
    }
    plain: list[str] = []
    for number, each in enumerate(args):
        if each == "--":
            return [*plain, *args[number:]]
        option, _, value = each.partition("=")
        if option in flags and value in _UNSET:
            plain += filter(None, [flags[option]])
        else:
            plain.append(option if option in flags and value in _SET else each)
    return plain
