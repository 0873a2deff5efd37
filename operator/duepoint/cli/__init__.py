"""The ``duepoint`` command: one file a subcommand, and what they share.

``root`` knows the names of the subcommands and nothing else, so that each call pays only for what
it runs. ``processes`` starts operator and worker; ``times``, ``checking`` and ``cronjob`` answer
without a cluster, from the same pure functions that the processes use; ``index``, ``byhand`` and
``webhooks`` look at and act on an installation. Clocks are read and texts are written here and
nowhere below.

Exit codes: 0; 1 there is nothing to show; 2 the input is wrong, told in one line on standard
error (``validate`` tells one line a problem).
"""

from duepoint.cli.root import commands, main

__all__ = ["commands", "main"]
