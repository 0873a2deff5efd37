"""The ``duepoint`` command: one file a subcommand, and what they share.

``root`` knows the names of the subcommands and nothing else, so that each call pays only for what
it runs. ``processes`` starts operator, worker and API; ``expression``, ``check`` and ``cronjob``
answer without a cluster, from the same pure functions that the processes use; ``schedules``,
``scheduleruns``, ``sets``, ``queue`` and ``doctor`` look at and act on an installation. ``options``
holds options and their meaning, ``output`` prints, ``cluster`` is the session with an API server.
Clocks are read and texts are written here and nowhere below.

Exit codes: 0, also where there is nothing to show; 1 the answer is no (a run failed, a check found
something wrong); 2 the command could not do its work, with one line on standard error
(``validate`` prints one line a problem).
"""

import sys

try:
    from duepoint.cli.root import commands, main, plugin
except KeyboardInterrupt:  # Ctrl-C while Python still reads modules: no command is there to end
    sys.exit(130)

__all__ = ["commands", "main", "plugin"]
