"""Who may write statuses decides what is forgotten and what runs again; SECURITY.md says so."""

from __future__ import annotations

from duepoint.kube import api as kubeapi
from duepoint.kube import credentials, port
from tests.e2e.test_crashes import in_seconds


async def test_who_writes_statuses_makes_slots_forgotten_or_run_again(stack):
    """With the operator's token, once the index is lost: it is filled again by the statuses."""
    first = await stack.running()
    soon, later = in_seconds(2), in_seconds(60)
    await stack.apply("again", {"schedule": soon, "webhook": stack.webhook()})
    (once,) = await stack.wait_for_deliveries(1, "again")
    for name in ("forgotten", "beside"):
        await stack.apply(name, {"schedule": later, "webhook": stack.webhook()})
        await stack.wait_until_ready(name)
    await stack.wait_for_schedule(
        "again", lambda found: found["status"].get("settledThrough"), "its slot has ended"
    )
    for process in first:
        assert await process.drain() == 0

    slot = soon.removeprefix("@at ")
    open_slots = {"count": 1, "oldest": slot, "started": [slot]}
    login = credentials.of_kubeconfig(stack.login("operator"))
    async with kubeapi.ApiSession(login, component="thief") as thief:
        for name, status in (
            ("again", {"openSlots": open_slots}),
            ("forgotten", {"settledThrough": later.removeprefix("@at ")}),
        ):
            path = f"/apis/duepoint.dev/v1alpha1/namespaces/{stack.namespace}/schedules/{name}"
            await thief.request(
                "PATCH", f"{path}/status", {"status": status}, content_type=port.MERGE_PATCH
            )
    with stack.redis.client() as client:
        client.flushall()
    stack.operator("second-operator"), stack.worker("second-worker")

    for later_one in await stack.wait_for_deliveries(2, "again"):
        assert (later_one.slot, later_one.webhook_id) == (once.slot, once.webhook_id)
    await stack.wait_for_deliveries(1, "beside")
    await stack.wait_for_schedule(
        "beside", lambda found: found["status"].get("runs", {}).get("succeeded"), "its success"
    )
    assert stack.delivered("forgotten") == []
