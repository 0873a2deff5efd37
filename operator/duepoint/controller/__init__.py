"""Schedule objects -> the queue, and what happened -> their status.

``leadership`` starts and ends everything of a term, and subscribes its services to the news of
``termevents``. ``watching`` is kopf's part and hands what changed to ``schedules``, whose reconcile
queue reads it, decides and brings it into the delay queue; ``status`` writes what became of it;
``jobs`` follows Jobs; ``scheduleruns`` serves ScheduleRuns; ``maintenance`` is the slow work on the
index. The modules beside them are values that several of these share. No import runs upwards.
"""
