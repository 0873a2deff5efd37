"""`python -m tools.callchain [-v]`: print the functions that a firing and an arming call.

*Firing* leads from the claim of a due point to the sent POST, *arming* from kopf's event of a
Schedule to the call that stores its due point; each is recorded from a run in this process. The
*chain* is the functions on the stack at the end, and those on the stack when its tasks were
created: a reader follows it from call to call. The *steps* are the chain and every function that
its functions call directly. If a queue passes the work on, the chain has one `Leg` for each
hand-over. Only code of the product counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import kopf

ROOT = str(Path(__file__).parents[1] / "operator" / "duepoint") + "/"

#: Whether a frame belongs to the wanted call.
Match = Callable[[FrameType], bool]


@dataclass(frozen=True, slots=True, order=True)
class Function:
    """A function of the product; the file is relative to the package."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file:<44} {self.name}"


@dataclass(frozen=True, slots=True)
class Leg:
    """A part of a chain, from a function of the product to any call."""

    begins: str
    ends: Match


@dataclass(slots=True)
class Chain:
    """A recorded chain, outermost first; all visited functions in order; the callers of each."""

    functions: list[Function] = field(default_factory=list)
    visited: list[Function] = field(default_factory=list)
    callers: dict[Function, set[Function]] = field(default_factory=dict)
    is_complete: bool = False

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(one.file for one in self.functions))

    @property
    def steps(self) -> list[Function]:
        """Return the chain and the functions that it calls directly, in order of first call."""
        chain = set(self.functions)
        return [one for one in self.visited if one in chain or self.callers[one] & chain]

    def report(self, *, verbose: bool = False) -> str:
        """Return the chain line by line, then the counts."""
        listed = self.steps if verbose else self.functions
        counts = f"chain: {_count(self.functions)}; steps: {_count(self.steps)}"
        return "\n".join([*map(str, listed), counts])


def _count(functions: Sequence[Function]) -> str:
    return f"{len(functions)} functions in {len({one.file for one in functions})} files"


class _Recorder:
    def __init__(self, legs: Sequence[Leg]) -> None:
        self.chain = Chain()
        self._legs = list(legs)
        #: The stack that created each task, innermost first.
        self._created: dict[object, list[Function]] = {}
        self._begun = False

    def factory(
        self, loop: asyncio.AbstractEventLoop, coro: object, **named: object
    ) -> asyncio.Task[object]:
        task: asyncio.Task[object] = asyncio.Task(coro, loop=loop, **named)  # type: ignore[arg-type]
        self._created[task] = self._whole_stack(sys._getframe(1))  # noqa: SLF001 - as inspect does
        return task

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not self._legs:
            return
        function = _function_of(frame)
        leg = self._legs[0]
        if function is not None:
            self._begun = self._begun or function.name == leg.begins
            if self._begun:
                self._note(function, frame)
        if self._begun and leg.ends(frame):
            self._end_leg(leg, frame)

    def _note(self, function: Function, frame: FrameType) -> None:
        if function not in self.chain.callers:
            self.chain.visited.append(function)
        callers = self.chain.callers.setdefault(function, set())
        outer = frame.f_back
        while outer is not None:
            if (caller := _function_of(outer)) is not None:
                callers.add(caller)
                return
            outer = outer.f_back
        with contextlib.suppress(RuntimeError):
            callers.update(self._created.get(asyncio.current_task(), [])[:1])

    def _end_leg(self, leg: Leg, frame: FrameType) -> None:
        stack = self._whole_stack(frame)
        names = [one.name for one in stack]
        if leg.begins not in names:
            return  # another call's: the same end is reached in other ways, too
        of_leg = stack[: names.index(leg.begins) + 1]
        known = dict.fromkeys(self.chain.functions)
        self.chain.functions = list(dict.fromkeys([*known, *reversed(of_leg)]))
        self._legs.pop(0)
        self._begun = False
        self.chain.is_complete = not self._legs

    def _whole_stack(self, frame: FrameType | None) -> list[Function]:
        """Return the product's functions, innermost first, then its creators beyond the task."""
        found: list[Function] = []
        while frame is not None:
            function = _function_of(frame)
            if function is not None:
                found.append(function)
            frame = frame.f_back
        with contextlib.suppress(RuntimeError):
            found += self._created.get(asyncio.current_task(), [])
        return list(dict.fromkeys(found))


@contextlib.contextmanager
def recording(*legs: Leg) -> Iterator[Chain]:
    """Record the first run through these legs; already running tasks have no creators."""
    loop = asyncio.get_running_loop()
    before, recorder = loop.get_task_factory(), _Recorder(legs)
    loop.set_task_factory(recorder.factory)  # type: ignore[arg-type]
    sys.setprofile(recorder.profile)
    try:
        yield recorder.chain
    finally:
        sys.setprofile(None)
        loop.set_task_factory(before)


def is_sent(method: bytes) -> Match:
    """Match the write of a request with this method to an asyncio transport."""

    def matches(frame: FrameType) -> bool:
        code = frame.f_code
        if code.co_name not in {"write", "writelines"} or "asyncio" not in code.co_filename:
            return False
        data = frame.f_locals.get("data") or frame.f_locals.get("list_of_data") or b""
        first = data if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        return bytes(first[: len(method)]) == method

    return matches


def is_called(name: str, file: str = "") -> Match:
    """Match a call of this function (its qualified name), in a file whose name ends so."""
    return lambda frame: (
        frame.f_code.co_qualname == name and frame.f_code.co_filename.endswith(file)
    )


def _function_of(frame: FrameType) -> Function | None:
    code = frame.f_code
    if not code.co_filename.startswith(ROOT) or code.co_name.startswith("<"):
        return None
    return Function(code.co_filename.removeprefix(ROOT), code.co_qualname)


async def firing() -> Chain:
    """Return the chain from the claim of a due point to the POST of its webhook."""
    from duepoint import clock as clocks  # noqa: PLC0415
    from duepoint import services  # noqa: PLC0415 - the product is imported for this scene alone
    from duepoint.schedules import actions  # noqa: PLC0415
    from tests.support import receiver, webhooktargets, workplace  # noqa: PLC0415
    from tests.support.builders import a_definition  # noqa: PLC0415

    place = workplace.Workplace(clocks.SystemClock())
    await place.queue.membership.open(1, workplace.EPOCH)
    async with receiver.listening() as hears, webhooktargets.a_target() as (webhook, _):
        url = f"http://127.0.0.1:{hears.port}/"
        place.targets = {"webhook": webhook}
        now_us = place.clock.now_us()
        began_us = now_us - 900_000  # its first slot is due in a moment
        known = a_definition("@every 1s", created_us=began_us, not_before_us=began_us)
        place.health = services.Health()
        await place.arm(known, actions.Action(target=actions.WebhookAction(url=url)))
        worker = place.a_worker()
        with recording(Leg(begins="Claimer._claim", ends=is_sent(b"POST"))) as chain:
            task = asyncio.create_task(worker.run())
            try:
                await asyncio.wait_for(hears.wait_until_asked(), 20)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
    return chain


async def arming(*, is_edit: bool = False) -> Chain:
    """Return the chain from kopf's event of a Schedule to the call that stores its due point."""
    from duepoint.controller.watching import kopfthread  # noqa: PLC0415
    from duepoint.kube import schedules  # noqa: PLC0415
    from tests.unit.controller.world import World  # noqa: PLC0415

    world = World()
    async with world.leader():
        if is_edit:
            await world.apply()
        world.watches = False
        applied = await world.apply(schedule="@every 7m")
        call, observe = asyncio.get_running_loop().call_soon_threadsafe, world.store.observe
        type_ = "MODIFIED" if is_edit else "ADDED"
        event = cast("kopf.RawEvent", {"type": type_, "object": applied})
        legs = (
            Leg("changed", is_called("BaseEventLoop.call_soon_threadsafe")),
            Leg("Store.observe", is_called("WorkQueue._end_wait")),
            Leg("WorkQueue._work", is_called("DefinitionWriter.upsert")),
        )
        with recording(*legs) as chain:
            await kopfthread.changed(
                lambda _, seen: call(observe, seen), event=event, param=schedules.PLURAL
            )
            await world.clock.advance(2)
    return chain


def main() -> None:
    """Print the chains; ``-v`` lists the steps."""
    for title, chain in (
        ("firing", asyncio.run(firing())),
        ("arming a new Schedule", asyncio.run(arming())),
        ("arming an edit", asyncio.run(arming(is_edit=True))),
    ):
        print(f"-- {title}")
        print(chain.report(verbose="-v" in sys.argv))


if __name__ == "__main__":
    main()
