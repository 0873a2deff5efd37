"""Schedule objects -> the queue, and what happened -> their status.

``leadership`` begins and ends a term and makes its services, which reach one another through
``term``. ``watching`` is kopf's part and hands what changed to
``schedules``, whose reconcile queue reads it, decides and brings it into the delay queue;
``status`` writes what became of it; ``jobs`` follows Jobs; ``scheduleruns`` serves ScheduleRuns;
``maintenance`` is the slow work on the index. The modules beside them are values that several of
these share. No import runs upwards.
"""
