"""The ``duepoint`` command: one module for each subcommand, and modules that they share.

``root`` knows only the names of the subcommands, so that a call imports only what it runs.
``processes`` starts operator, worker and API. ``expression``, ``check`` and ``cronjob`` work
without a cluster, with the same pure functions as the processes. ``schedules``, ``scheduleruns``,
``sets``, ``queue`` and ``doctor`` show and change an installation. ``options`` defines shared
options, ``output`` prints, ``cluster`` connects to an API server. Of these packages and those that
they use, only this one reads clocks and writes texts for people.

Exit codes: 0 = success, also if there is nothing to show; 1 = the answer is negative (a run failed,
a check found something wrong); 2 = the command could not do its work, with one line on standard
error (``validate`` prints one line for each problem).
"""

import sys

try:
    from duepoint.cli.root import commands, main, plugin
except KeyboardInterrupt:  # Ctrl-C during the imports, before a command could handle it
    sys.exit(130)

__all__ = ["commands", "main", "plugin"]
