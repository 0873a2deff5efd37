"""The controller: stores Schedules in the queue, and writes their results to their statuses.

``leadership`` runs each term and creates its services, which reach one another through ``term``.
``watching`` runs kopf and passes changed objects to ``schedules``, which reads each object, decides
and stores it in the delay queue; ``status`` writes the statuses; ``jobs`` follows Jobs;
``scheduleruns`` and ``schedulesets`` reconcile those objects; ``maintenance`` does the slow work on
the index. The modules beside these packages are shared by several of them. No import runs upwards.
"""
