"""Duepoint: schedules for Kubernetes that are never early and never lost.

Jobs, and streams in Duepoint's own Redis, come exactly once; every other delivery comes at least
once, with an id that is the same for every attempt. Each arrow names the module that owns it::

    Schedule --watching.kopfthread, schedules.resync--> schedules.store
             --schedules.reconcile, plan-->
             delayqueue.definitions.upsert --> index in Redis

    index --wakeups, claims.claiming--> worker.claimer --> worker.firing
          --planner, planning--> worker.firing
          --targets.job | webhook | stream | kafka--> API server, receiver, stream, topic
          --settler, claims.settling--> index: next due, retry, dead letter, outcome

    outcomes --status.outcomes--> status.reporter --folding, render, writer--> Schedule's status
    Jobs --jobs.jobsync, jobstate--> status.reporter

``schedules``, ``expressions`` and ``runs`` decide and do no I/O; ``net``, ``kube`` and
``delayqueue.wire`` do I/O and decide nothing. ``app`` constructs everything.
"""

__version__ = "0.1.0"
