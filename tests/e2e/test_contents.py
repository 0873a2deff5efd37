"""The queue holds what the objects ask for, after a change of the key that seals what it holds."""

from __future__ import annotations

import secrets

import pytest

from tests.e2e.test_jobs import condition, template
from tests.support.stack import eventually


@pytest.mark.parametrize("order", [("operator", "worker"), ("worker", "operator")], ids="-".join)
async def test_a_changed_blob_key_stops_no_schedule_and_runs_no_slot_twice(stack, tmp_path, order):
    running = dict(zip(("operator", "worker"), await stack.running(), strict=True))
    await stack.apply("hook", {"schedule": "@every 1s", "webhook": stack.webhook()})
    await stack.apply("job", {"schedule": "@every 1s", "jobTemplate": template()})
    await stack.wait_for_deliveries(1, "hook")
    await stack.wait_for_job("job", 1)
    file = tmp_path / "another-key"
    file.write_bytes(secrets.token_bytes(32))
    for role in order:
        await running[role].drain()
        start = stack.operator if role == "operator" else stack.worker
        await start(f"{role}-2", blob_key_file=str(file)).wait_until_ready()
    before, made = len(stack.delivered("hook")), await job_uids(stack)
    await stack.wait_for_deliveries(before + 3, "hook")

    async def another() -> bool:
        return not await job_uids(stack) <= made

    await eventually(another, "another Job")
    ids = [one.webhook_id for one in stack.delivered("hook")]
    assert len(ids) == len(set(ids))
    for name in ("hook", "job"):
        assert condition(await stack.schedule(name), "Ready")["status"] == "True"


async def job_uids(stack) -> set[str]:
    return {job["metadata"]["uid"] for job in await stack.jobs("job")}
