"""``python -m duepoint``."""

from duepoint.cli import main

main()
