"""Schedule objects -> the queue, and what happened -> their status.

``leadership`` starts and ends everything of a term. ``watching`` is kopf's part and hands what it
saw to ``reconciling``, which brings it into the queue; ``status`` writes what became of it;
``jobs`` follows Jobs; ``manual`` serves ScheduleRuns; ``upkeep`` is the slow work on the index.
"""
