"""Edits, suspension, deletion, restarts: what is fired is what is asked for now."""

from __future__ import annotations

from tests.support import editing
from tests.support.stack import eventually


async def is_silent(stack, name: str, *, pulses: int) -> bool:
    """Whether nothing of it is delivered while another Schedule fires so often."""
    seen = len(stack.delivered(name))
    await stack.wait_for_deliveries(len(stack.delivered("pulse")) + pulses, "pulse")
    return len(stack.delivered(name)) == seen


async def test_deletions_while_no_operator_runs_leave_no_ghost(stack):
    operator, _ = await stack.running()
    spec = {"schedule": "@every 1s", "webhook": stack.webhook()}
    await stack.apply("ghost", spec)
    await stack.apply("pulse", spec)
    await stack.wait_for_deliveries(1, "ghost")
    await operator.kill()
    await stack.delete("ghost")
    await stack.apply("born", {"schedule": "@every 1s", "webhook": stack.webhook()})
    # Firing needs no operator; the lost deletion is noticed by the next one.
    await stack.wait_for_deliveries(len(stack.delivered("pulse")) + 2, "pulse")
    stack.operator("operator-2")
    await stack.wait_until_ready("born")
    await eventually(lambda: is_silent(stack, "ghost", pulses=2), "the ghost is gone")
    await stack.wait_for_deliveries(1, "born")


async def test_a_leader_that_is_killed_and_started_again_in_its_place_leads_again(stack):
    """Its own Lease is no reason to wait: it goes on under its name."""
    operator = stack.operator()
    await operator.wait_until_ready()
    before = await stack.lease()
    await operator.kill()
    operator.start()

    async def is_taken():
        return (await stack.lease())["leaseTransitions"] > before["leaseTransitions"]

    await eventually(is_taken, "the operator leads again")
    assert (await stack.lease())["holderIdentity"] == before["holderIdentity"]


async def test_of_random_edits_none_is_overtaken_by_an_older_generation(stack):
    """`make bench NAME=edits` does ten thousand of them."""
    await stack.running()
    editor = editing.Editor(stack, schedules=12, jobs=4, seed=20_261_122)
    found = await editor.run(edits=150)
    assert found.edits == 150
    assert found.judged >= 40, "too few slots came after an edit to tell anything"
    assert found.stale == ()
