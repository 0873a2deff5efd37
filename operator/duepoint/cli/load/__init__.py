"""``duepoint load``: one-offs in a set, and how late their events came.

load        the command: plan, submit, wait, report
submitting  how the members get into the set
receiver    a webhook receiver that notes when each event arrived
lateness    what became of them, in figures
drawing     the same as a picture
plan        when each of them is due
"""
