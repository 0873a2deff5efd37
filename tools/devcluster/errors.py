"""The one exception of this tool: what went wrong and what to do, in words for its user.

The command line prints the message and exits with 1; it never shows a traceback for it.
"""

from __future__ import annotations


class DevClusterError(Exception):
    """Something the user can act on; the message says how."""
