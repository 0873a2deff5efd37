# ruff: noqa: PLC0415, DTZ004 - written against the library of that peer
"""rq-scheduler: jobs that are due at once. Arguments: port, number of jobs; output as others."""

import subprocess
import sys
import time
from datetime import datetime

import redis


def noop(port):
    redis.Redis(port=port).rpush("times", time.time_ns() // 1000)


def main(port, count):
    import rqpeer
    from rq_scheduler import Scheduler

    connection = redis.Redis(port=port)
    scheduler = Scheduler(connection=connection, interval=1)
    due = int(time.time()) + 4 + count // 1000
    at = datetime.utcfromtimestamp(due)
    for _ in range(count):
        scheduler.enqueue_at(at, rqpeer.noop, port, job_result_ttl=0)
    pre = f"import sys,redis;sys.path.insert(0,{sys.path[0]!r});c=redis.Redis(port={port});"
    codes = (
        pre + "from rq_scheduler import Scheduler;Scheduler(connection=c,interval=1).run()",
        pre + "from rq import Queue,SimpleWorker;"
        "SimpleWorker([Queue('default',connection=c)],connection=c).work(logging_level='ERROR')",
    )
    quiet = subprocess.DEVNULL
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=quiet, stderr=quiet) for code in codes
    ]
    try:
        while connection.llen("times") < count:
            time.sleep(0.1)
        times = [int(at) for at in connection.lrange("times", 0, -1)]
        print(due * 1_000_000, *times, sep="\n", flush=True)
    finally:
        for one in running:
            one.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
