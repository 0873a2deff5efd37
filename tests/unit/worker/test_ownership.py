"""A worker and whose index its Redis holds: another cluster's points are left alone."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import layouts
from duepoint.kube import errors
from duepoint.targets import jobtarget
from duepoint.targets.jobtarget import JobTarget
from duepoint.worker.keepalive import PART
from duepoint.worker.ownership import Ownership, OwnJobs
from tests.support.jobworkplace import DOWN, JobWorkplace
from tests.support.workplace import EPOCH, WEBHOOK

THEIRS = layouts.Owner(cluster="uid-of-theirs")
FORBIDDEN = errors.Forbidden("may not get namespaces", is_about_rights=True)


class Place(JobWorkplace):
    """A workplace whose workers ask which cluster they are of."""

    def __init__(self) -> None:
        super().__init__()
        kube_system = self.api.stored("namespaces", "", "kube-system")
        self.ours = layouts.Owner(cluster=kube_system["metadata"]["uid"])
        self.owned = Ownership(self.api, self.queue, self.clock, namespace="duepoint-system")
        own_jobs = OwnJobs(self.api, self.owned)
        self.targets = {"job": JobTarget(own_jobs, self.clock), "webhook": self.webhooks}
        self.jobs = jobtarget.ActiveJobs(own_jobs)
        self.before_claims = self.owned.before_claims


@pytest.fixture
async def place():
    return Place()


async def opened_by(place: Place, owner: layouts.Owner) -> None:
    place.queue.layouts.belong_to(owner)
    await place.queue.membership.open(4, EPOCH)


async def test_a_worker_makes_no_job_of_another_clusters_schedule(place):
    await opened_by(place, THEIRS)
    await place.schedule("Allow")
    async with place.working(place.a_worker()):
        await place.clock.advance(60)
        assert "another cluster" in place.health.troubles()[PART]
        assert "redis.prefix" in place.health.troubles()[PART]
    assert place.jobs_there() == []


async def test_a_worker_that_starts_while_the_api_server_is_away_sends_webhooks(place):
    await opened_by(place, place.ours)
    await place.schedule("Allow", WEBHOOK)
    place.api.fail_next(DOWN, resource="namespaces")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
    assert place.fired() == [10]


async def test_a_worker_that_learns_late_whose_the_index_is_makes_no_job_of_its_claims(place):
    await opened_by(place, THEIRS)
    await place.schedule("Allow")
    for _ in range(3):
        place.api.fail_next(DOWN, resource="namespaces")
    place.queue.layouts._owner = None  # this process has not asked yet
    place.queue.index.scripts.owner = ""
    async with place.working(place.a_worker()):
        await place.clock.advance(60)
        assert "another cluster" in place.health.troubles()[PART]
    assert place.jobs_there() == []


async def test_a_worker_that_may_not_ask_which_cluster_it_is_of_claims_nothing(place):
    await opened_by(place, place.ours)
    await place.schedule("Allow", WEBHOOK)
    for _ in range(100):
        place.api.fail_next(FORBIDDEN, resource="namespaces")
    async with place.working(place.a_worker()):
        await place.clock.advance(15)
        assert "kube-system" in place.health.troubles()[PART]
    assert place.fired() == []
