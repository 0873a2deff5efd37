"""The behaviour that Duepoint needs of an API server, tested on a fake, a local and a real one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
import pytest

from duepoint.clock import SystemClock
from duepoint.kube import api as apis
from duepoint.kube import (
    credentials,
    errors,
    events,
    jobbuilder,
    jobs,
    leases,
    pods,
    port,
    schedules,
    services,
)
from duepoint.kube.local.api import LocalApi
from duepoint.schedules.conditions import Reason
from duepoint.services import Health
from tests.fakes.fakekubernetes import FakeKubernetes
from tests.support.controlplane import ControlPlane
from tests.support.servedcrds import duepoint_plane

__all__ = ["duepoint_plane"]

AnswerT = TypeVar("AnswerT")
SLOT_US = 1_800_000_000_000_000
OWNER = "report"
#: The real server may have an operator that handles our Schedules too. It writes generation 1, and
#: the guards of the status refuse that once we have written this one.
OURS = 100


@dataclass
class World:
    """An API server and a namespace of the test's own."""

    api: port.Api
    namespace: str
    fake: FakeKubernetes | None = None
    owner_uid: str = ""

    async def facts(self, **changes: Any) -> jobbuilder.SlotFacts:
        """Return facts of an existing Schedule's slot; else Jobs would be garbage collected."""
        if not self.owner_uid:
            self.owner_uid = (await self.a_schedule(OWNER)).uid
        facts = jobbuilder.SlotFacts(
            namespace=self.namespace,
            name=OWNER,
            uid=self.owner_uid,
            slot_us=SLOT_US,
            previous_us=SLOT_US - 60_000_000,
            trigger="Schedule",
            time_zone="Etc/UTC",
        )
        return replace(facts, **changes)

    async def job(self, **changes: Any) -> dict[str, Any]:
        return jobbuilder.job_for(a_template(), await self.facts(**changes), b'{"a":1}')

    async def found(self) -> tuple[jobs.Job, ...]:
        owner = jobs.JobOwner(self.namespace, OWNER, self.owner_uid)
        listed = await port.listed(self.api, jobs.collection(self.namespace), jobs.Job, {})
        return tuple(job for job in listed if jobs.is_run_of(job, owner))

    async def create(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        return msgspec.json.decode(await self.api.request("POST", path, document))

    async def a_schedule(self, name: str = "nightly") -> schedules.StatusTarget:
        made = await self.create(
            schedules.collection(self.namespace),
            {
                "apiVersion": schedules.API_VERSION,
                "kind": schedules.KIND,
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"schedule": "0 0 1 1 *", "webhook": {"url": "https://example.com/"}},
            },
        )
        return schedules.StatusTarget(
            namespace=self.namespace, name=name, uid=made["metadata"]["uid"]
        )

    async def read(self, path: str) -> dict[str, Any]:
        return msgspec.json.decode(await self.api.request("GET", path))


def a_template(**pod: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox"}
    spec = {"restartPolicy": "Never", "containers": [container], **pod}
    return {"spec": {"suspend": True, "template": {"spec": spec}}}


async def eventually(
    ask: Callable[[], Awaitable[AnswerT]],
    is_so: Callable[[AnswerT], object],
    *,
    within_seconds: float = 30,
) -> AnswerT:
    """Return the first answer that holds; for effects of the API server's own watches."""
    async with asyncio.timeout(within_seconds):
        while True:
            answer = await ask()
            if is_so(answer):
                return answer
            await asyncio.sleep(0.02)


@pytest.fixture(params=["fake", "local", "real"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "fake":
        fake = FakeKubernetes()
        yield World(fake, "team", fake=fake)
        return
    if request.param == "local":
        yield World(LocalApi(SystemClock().now_us, namespaces=("team",)), "team")
        return
    plane: ControlPlane = request.getfixturevalue("duepoint_plane")
    namespace = request.getfixturevalue("kube_namespace")
    access = credentials.of_kubeconfig(plane.kubeconfig)
    async with apis.ApiSession(access, component="test") as session:
        yield World(session, namespace)


# -- Jobs -------------------------------------------------------------------------------------


async def test_a_slot_has_one_job_however_often_it_is_created(world: World):
    first = await jobs.create(world.api, world.namespace, await world.job())
    second = await jobs.create(world.api, world.namespace, await world.job())
    assert isinstance(first, jobs.Created)
    assert second == jobs.Created(first.uid, is_new=False)
    assert len(await world.found()) == 1


async def test_a_job_of_another_schedule_is_a_conflict_and_stays(world: World):
    theirs = await world.job()
    other = await world.a_schedule("other")
    theirs["metadata"]["ownerReferences"][0] |= {"name": "other", "uid": other.uid}
    await world.create(jobs.collection(world.namespace), theirs)
    answer = await jobs.create(world.api, world.namespace, await world.job())
    assert answer.reason is Reason.NAME_CONFLICT
    assert other.uid in answer.message
    found = await world.read(jobs.path(world.namespace, theirs["metadata"]["name"]))
    assert found["metadata"]["ownerReferences"][0]["uid"] == other.uid


async def test_a_refused_template_is_told_with_the_servers_words(world: World):
    wrong = jobbuilder.job_for(a_template(restartPolicy="Always"), await world.facts())
    answer = await jobs.create(world.api, world.namespace, wrong)
    assert isinstance(answer, jobs.JobRefused)
    assert answer.reason is Reason.INVALID_JOB_TEMPLATE
    assert "restartPolicy" in answer.message
    assert not answer.may_heal


async def test_a_dry_run_creates_nothing_and_knows_good_from_bad(world: World):
    good = await jobs.dry_run(world.api, world.namespace, await world.job())
    bad = jobbuilder.job_for(a_template(containers=[]), await world.facts())
    refused = await jobs.dry_run(world.api, world.namespace, bad)
    assert good is None
    assert refused.reason is Reason.INVALID_JOB_TEMPLATE
    assert "containers" in refused.message
    assert not await world.found()


def _skip_local(world: World) -> None:
    if isinstance(world.api, LocalApi) and world.fake is None:
        pytest.skip("duepoint run has neither quotas nor namespaces that end")


async def test_a_full_quota_is_a_refusal_that_may_heal(world: World):
    _skip_local(world)
    if world.fake:
        world.fake.job_quota[world.namespace] = 0
    else:
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
        path = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
        await world.create(path, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    job = await world.job()
    verdict = await eventually(
        lambda: jobs.dry_run(world.api, world.namespace, job),
        lambda found: found is not None,
    )
    assert isinstance(verdict, jobs.JobRefused)
    assert verdict.reason is Reason.FORBIDDEN
    answer = await jobs.create(world.api, world.namespace, job)
    assert isinstance(answer, jobs.JobRefused)
    assert answer.reason is Reason.FORBIDDEN
    assert answer.may_heal


async def test_a_terminating_namespace_takes_no_job(world: World):
    _skip_local(world)
    job = await world.job()
    if world.fake:
        world.fake.terminating.add(world.namespace)
    else:
        await world.api.request("DELETE", f"/api/v1/namespaces/{world.namespace}")
    answer = await jobs.create(world.api, world.namespace, job)
    assert isinstance(answer, jobs.JobRefused)
    assert answer.reason is Reason.DELETED
    assert not answer.may_heal


async def test_a_job_is_deleted_only_under_its_uid(world: World):
    made = await jobs.create(world.api, world.namespace, await world.job())
    assert isinstance(made, jobs.Created)
    name = (await world.job())["metadata"]["name"]
    assert not await jobs.delete(world.api, world.namespace, name, "another")
    assert await world.found()
    assert await jobs.delete(world.api, world.namespace, name, made.uid)
    assert not await jobs.delete(world.api, world.namespace, "never-was", made.uid)


# -- Leases -----------------------------------------------------------------------------------


def a_lease(holder: str = "a", **changes: Any) -> leases.Lease:
    lease = leases.Lease(
        holder=holder,
        duration_seconds=15,
        transitions=1,
        acquired_us=SLOT_US,
        renewed_us=SLOT_US + 5,
        annotations={"duepoint.dev/epoch": "1"},
    )
    return replace(lease, **changes)


async def test_a_lease_comes_back_as_it_was_written(world: World):
    lease = leases.KubeLease(world.api, world.namespace, "l", Health())
    made = await lease.create(a_lease())
    assert made
    assert made == await lease.get()
    assert replace(made, version="", metadata={}) == a_lease()


async def test_a_lease_is_written_only_from_its_newest_version(world: World):
    lease = leases.KubeLease(world.api, world.namespace, "l", Health())
    first = await lease.create(a_lease())
    assert first
    second = await lease.update(replace(first, holder="b", transitions=2))
    assert second
    assert second.holder == "b"
    assert await lease.update(replace(first, holder="c")) is None
    assert await lease.get() == second


# -- status -----------------------------------------------------------------------------------


async def test_a_status_is_written_whole_and_leaves_the_spec_alone(world: World):
    object_ = await world.a_schedule()
    before = await world.read(schedules.path(world.namespace, "nightly"))
    answer = await schedules.write_status(
        world.api, object_, {"observedGeneration": OURS, "activeCount": 2}
    )
    written = await world.read(schedules.path(world.namespace, "nightly"))
    assert answer == int(written["metadata"]["resourceVersion"])
    await schedules.write_status(world.api, object_, {"observedGeneration": OURS})
    after = await world.read(schedules.path(world.namespace, "nightly"))
    assert after["status"] == {"observedGeneration": OURS}
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


OTHERS = "example.com/kept"


async def a_set(world: World) -> schedules.ScheduleSet:
    """Return a set that has another controller's finalizer, too."""
    await world.create(
        schedules.set_collection(world.namespace),
        {
            "apiVersion": schedules.API_VERSION,
            "kind": schedules.SET_KIND,
            "metadata": {"name": "kept", "namespace": world.namespace, "finalizers": [OTHERS]},
            "spec": {"stream": {"name": "ticks"}},
        },
    )
    return await the_set(world)


async def the_set(world: World) -> schedules.ScheduleSet:
    found = await schedules.read_set(world.api, world.namespace, "kept")
    assert found is not None
    return found


async def changed(world: World, *, is_held: bool) -> None:
    """Change the finalizer, whatever an operator on the same server does meanwhile."""

    async def attempt() -> bool:
        return await schedules.set_finalizer(world.api, await the_set(world), is_present=is_held)

    await eventually(attempt, bool)


async def test_a_finalizer_joins_others_and_is_written_once(world: World):
    before = await a_set(world)
    await changed(world, is_held=True)
    held = await the_set(world)
    assert set(held.metadata.finalizers) == {OTHERS, schedules.FINALIZER}
    assert await schedules.set_finalizer(world.api, held)
    assert (await the_set(world)).metadata.resource_version == held.metadata.resource_version
    # what was read before the other's change must not undo it
    assert not await schedules.set_finalizer(world.api, before)


async def test_a_deleted_object_stays_until_the_last_finalizer_is_gone(world: World):
    await a_set(world)
    await changed(world, is_held=True)
    path = schedules.path(world.namespace, "kept", plural=schedules.SET_PLURAL)
    await world.api.request("DELETE", path)
    deleted = await the_set(world)
    assert deleted.metadata.deletion_timestamp is not None
    assert deleted.metadata.generation == 2
    await changed(world, is_held=False)
    left = await the_set(world)
    assert left.metadata.finalizers == (OTHERS,)
    await world.api.request(
        "PATCH", path, [{"op": "remove", "path": "/metadata/finalizers"}],
        content_type=port.JSON_PATCH,
    )  # fmt: skip
    assert await schedules.read_set(world.api, world.namespace, "kept") is None
    assert await schedules.set_finalizer(world.api, deleted, is_present=False)


async def test_a_namesake_of_a_deleted_schedule_is_never_written_to(world: World):
    object_ = await world.a_schedule()
    ours = {"observedGeneration": OURS}
    await world.api.request("DELETE", schedules.path(world.namespace, "nightly"))
    assert await schedules.write_status(world.api, object_, ours) is None
    await world.a_schedule()
    assert await schedules.write_status(world.api, object_, ours) is None
    found = await world.read(schedules.path(world.namespace, "nightly"))
    assert found["status"]["observedGeneration"] < OURS


@pytest.mark.parametrize(
    "older",
    [
        {"observedGeneration": OURS - 1, "settledThrough": "2999-01-02T00:00:00Z"},
        {"observedGeneration": OURS, "settledThrough": "2999-01-01T00:00:00Z"},
    ],
    ids=["observedGeneration", "settledThrough"],
)
async def test_a_status_never_turns_back(world: World, older: dict[str, Any]):
    object_ = await world.a_schedule()
    newest = {"observedGeneration": OURS, "settledThrough": "2999-01-02T00:00:00Z"}
    await schedules.write_status(world.api, object_, newest)
    with pytest.raises(errors.Invalid, match="may not fall"):
        await schedules.write_status(world.api, object_, older)
    found = await world.read(schedules.path(world.namespace, "nightly"))
    assert found["status"] == newest


async def test_a_watermark_is_compared_as_a_time_and_not_as_a_text(world: World):
    object_ = await world.a_schedule()
    whole, half = (
        {"observedGeneration": OURS, "settledThrough": f"2999-01-02T00:00:00{fraction}Z"}
        for fraction in ("", ".500000")
    )
    for newer in (whole, half):
        assert await schedules.write_status(world.api, object_, newer) is not None
    with pytest.raises(errors.Invalid):
        await schedules.write_status(world.api, object_, whole)


# -- lists and watches ------------------------------------------------------------------------


async def test_a_list_comes_in_pages_without_loss(world: World):
    for number in range(5):
        await world.a_schedule(f"s{number}")
    pages = [
        page
        async for page in world.api.list_pages(
            schedules.collection(world.namespace), schedules.Schedule, limit=2
        )
    ]
    names = [item.metadata.name for page in pages for item in page.items]
    assert [len(page.items) for page in pages] == [2, 2, 1]
    assert names == ["s0", "s1", "s2", "s3", "s4"]
    assert len({page.metadata.resource_version for page in pages}) == 1
    assert msgspec.json.decode(pages[0].items[0].spec)["schedule"] == "0 0 1 1 *"
    status = msgspec.json.decode(pages[0].items[0].status)
    assert status.get("observedGeneration", -1) < OURS


async def test_a_watch_tells_every_change_after_the_list(world: World):
    await world.a_schedule("before")
    path = schedules.collection(world.namespace)
    pages = world.api.list_pages(path, schedules.Schedule)
    version = (await anext(pages)).metadata.resource_version
    object_ = await world.a_schedule("after")
    await schedules.write_status(world.api, object_, {"observedGeneration": OURS})
    await world.api.request("DELETE", schedules.path(world.namespace, "before"))
    seen = []
    changes = world.api.watch(path, schedules.Schedule, version)
    async with asyncio.timeout(60), contextlib.aclosing(changes):
        async for change in changes:
            seen.append((change.type, change.item.metadata.name))
            if change.type is port.ChangeType.DELETED:
                break
    assert seen.index(("ADDED", "after")) < seen.index(("MODIFIED", "after"))
    assert seen[-1] == ("DELETED", "before")


async def test_an_edit_of_the_spec_counts_generations_and_one_of_labels_does_not(world: World):
    await world.a_schedule()
    path = schedules.path(world.namespace, "nightly")
    found = []
    for patch in ({"metadata": {"labels": {"a": "b"}}}, {"spec": {"schedule": "1 0 1 1 *"}}):
        await world.api.request("PATCH", path, patch, content_type=port.MERGE_PATCH)
        found.append((await world.read(path))["metadata"]["generation"])
    assert found == [1, 2]


async def test_what_a_deleted_schedule_owned_goes_too(world: World):
    if world.fake is not None:
        pytest.skip("nothing is collected in the fake")
    object_ = await world.a_schedule(OWNER)
    world.owner_uid = object_.uid
    await world.create(jobs.collection(world.namespace), await world.job())
    await world.api.request("DELETE", schedules.path(world.namespace, OWNER))
    # The garbage collector looks for new kinds every 30 s, and learns of ours only then.
    await eventually(world.found, lambda found: not found, within_seconds=120)


# -- Services ---------------------------------------------------------------------------------


async def a_service(world: World, **spec: Any) -> None:
    await world.create(
        f"/api/v1/namespaces/{world.namespace}/services",
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "billing"}, "spec": spec},
    )


async def a_slice(world: World, *endpoints: dict[str, Any], port_name: str = "http") -> None:
    await world.create(
        f"/apis/discovery.k8s.io/v1/namespaces/{world.namespace}/endpointslices",
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "b", "labels": {"kubernetes.io/service-name": "billing"}},
            "addressType": "IPv4",
            "endpoints": list(endpoints),
            "ports": [{"name": port_name, "port": 8181, "protocol": "TCP"}],
        },
    )


PORTS = [
    {"name": "http", "port": 80, "targetPort": 8181, "protocol": "TCP"},
    {"name": "admin", "port": 81, "targetPort": 8282, "protocol": "TCP"},
]


async def test_a_headless_service_is_dialled_at_its_ready_endpoints(world: World):
    await a_service(world, clusterIP="None", ports=PORTS, selector={"no-pod": "has-this"})
    await a_slice(
        world,
        {"addresses": ["10.1.2.3"], "conditions": {"ready": True}},
        {"addresses": ["10.1.2.4"], "conditions": {"ready": False}},
        {"addresses": ["10.1.2.5"], "conditions": {}},
    )
    found = await services.resolve(world.api, world.namespace, "billing", "http")
    assert isinstance(found, services.ServiceResolved)
    assert set(found.addresses) == {
        ("10.1.2.3", 8181),
        ("10.1.2.5", 8181),
    }
    assert found.server_name == f"billing.{world.namespace}.svc"
    assert not found.vouched, "the endpointslice controller did not write that slice"


# -- Events -----------------------------------------------------------------------------------


async def test_news_becomes_an_event_about_the_schedule(world: World):
    object_ = await world.a_schedule()
    about = events.ObjectReference(namespace=world.namespace, name=object_.name, uid=object_.uid)
    recorder = events.Recorder(world.api, SystemClock(), "operator")
    news = events.Event(
        regarding=about, reason="RunFailed", action="Run", note="exit 1", warning=True
    )
    recorder.note(news)
    recorder.note(news)
    posting = asyncio.create_task(recorder.run())
    path = f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events"
    listed = await eventually(lambda: world.read(path), lambda found: found["items"])
    found = listed["items"]
    posting.cancel()
    assert len(found) == 1
    assert found[0]["regarding"]["uid"] == object_.uid
    assert (found[0]["reason"], found[0]["type"], found[0]["note"]) == (
        "RunFailed",
        "Warning",
        "exit 1",
    )
    assert found[0]["reportingController"] == "duepoint.dev/operator"


async def test_the_newest_refusal_of_a_jobs_pods_is_found_among_other_events(world: World):
    path = f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events"
    said = [("a", "FailedCreate"), ("a", "FailedCreate"), ("a", "Created"), ("b", "FailedCreate")]
    for minute, (uid, reason) in enumerate(said):
        body = {
            "metadata": {"generateName": "job-", "namespace": world.namespace},
            "eventTime": f"2026-03-01T12:0{minute}:00.000000Z",
            "reportingController": "job-controller",
            "reportingInstance": "test",
            "action": "Create",
            "type": "Warning",
            "reason": reason,
            "note": f"{reason} {minute}",
            "regarding": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "namespace": world.namespace,
                "name": "nightly-1",
                "uid": uid,
            },
        }
        await world.api.request("POST", path, body)
    assert await pods.newest_pod_refusal(world.api, world.namespace, "a") == "FailedCreate 1"
    assert await pods.newest_pod_refusal(world.api, world.namespace, "c") == ""
