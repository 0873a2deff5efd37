"""Schedule objects -> the queue, and what happened -> their status.

``leadership`` starts and ends everything of a term. ``watching`` is kopf's part and hands sightings
to ``reconciling``, which brings them into the queue; ``status`` writes what became of them; ``jobs``
follows their Jobs; ``manual`` serves ScheduleRuns; ``upkeep`` is the slow work on the index.
"""
