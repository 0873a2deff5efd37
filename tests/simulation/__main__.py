"""Play histories: ``python -m tests.simulation --help``."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import itertools
import multiprocessing
import sys
import time
from collections.abc import Iterator
from multiprocessing import queues

from tests.simulation import oracle, playing, scopes, stories
from tests.simulation.faults import Kind

#: The function that makes a story of a seed, by scope.
_OF_SEEDS = {
    "random": stories.of_seed,
    "storms": stories.of_storm,
    "crowds": stories.of_crowd,
    "replacing": stories.of_replacing,
}
_SCOPES = (*_OF_SEEDS, "singles", "kinds")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="1:300", help="FIRST:LAST, or one seed (default 1:300)")
    parser.add_argument("--scope", choices=_SCOPES, default="random")
    parser.add_argument(
        "--story", choices=tuple(scopes.STORIES), help="of singles and kinds; unset: all"
    )
    parser.add_argument("--part", default="1/1", help="K/N: every Nth history, from the Kth on")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--show",
        metavar="SEED",
        type=int,
        help="play one seed of storms, crowds, replacing or (usual) random, and print its trace",
    )
    chosen = parser.parse_args()
    playing.begin()
    try:
        return _run(chosen)
    finally:
        playing.end()


def _run(chosen: argparse.Namespace) -> int:
    if chosen.show is not None:
        return _show(chosen.show, chosen.scope)
    first, _, last = chosen.seeds.partition(":")
    numbers = range(int(first), int(last or first) + 1)
    names = (chosen.story,) if chosen.story else tuple(scopes.STORIES)
    part, _, parts = chosen.part.partition("/")
    tasks = itertools.islice(_tasks(chosen.scope, numbers, names), int(part) - 1, None, int(parts))
    return 1 if _play_all(tasks, chosen.jobs) else 0


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _tasks(scope: str, seeds: range, names: tuple[str, ...]) -> Iterator[playing.Task]:
    if scope in _OF_SEEDS:
        for seed in seeds:
            yield seed, _OF_SEEDS[scope](seed)
        return
    for name in names:
        story = scopes.STORIES[name]()
        seed = seeds[0]
        quiet = playing.play((seed, story))
        if scope == "kinds":
            for pair in scopes.kinds(scopes.of_firing(quiet)):
                yield seed, scopes.with_events(story, *pair)
            continue
        numbers = [*scopes.of_applying(quiet), *scopes.of_slot(quiet)]
        for event in scopes.singles(numbers, list(Kind)):
            yield seed, scopes.with_events(story, event)


def _play_all(tasks: Iterator[playing.Task], jobs: int) -> int:
    """Play the tasks and return how many histories failed."""
    began = time.monotonic()
    histories = failed = points = faults = changes = 0
    context = multiprocessing.get_context("fork")  # everything is imported here already
    with contextlib.ExitStack() as held:
        places: queues.SimpleQueue[playing.Place] = context.SimpleQueue()
        for number in range(jobs):
            places.put(held.enter_context(playing.a_place(number, jobs)))
        pool = held.enter_context(
            concurrent.futures.ProcessPoolExecutor(
                jobs, context, initializer=playing.begin_in_pool, initargs=(places,)
            )
        )
        for task, verdict in _played(pool, tasks, jobs):
            histories, points = histories + 1, points + verdict.points
            faults, changes = faults + verdict.faults, changes + verdict.changes
            if verdict.problems:
                failed += 1
                _report(task, verdict.problems)
    seconds = time.monotonic() - began
    _say(
        f"{histories} histories, {failed} failed; {points} points,"
        f" {faults} faults, {changes} changes by users; {seconds:.0f} s,"
        f" {60 * histories / seconds:.0f} a minute"
    )
    return failed


def _played(
    pool: concurrent.futures.Executor, tasks: Iterator[playing.Task], jobs: int
) -> Iterator[tuple[playing.Task, playing.Verdict]]:
    """Yield the results as histories end; a few run at a time."""
    waiting: dict[concurrent.futures.Future[playing.Verdict], playing.Task] = {}
    while True:
        for task in itertools.islice(tasks, 3 * jobs - len(waiting)):
            waiting[pool.submit(playing.verdict_on, task)] = task
        if not waiting:
            return
        done, _ = concurrent.futures.wait(waiting, return_when="FIRST_COMPLETED")
        for each in done:
            yield waiting.pop(each), each.result()


def _report(task: playing.Task, problems: list[str]) -> None:
    seed, story = task
    events = ", ".join(map(str, story.events))
    _say(f"seed {seed}: {story.schedules[0].target}: {events or 'no event'}")
    for problem in problems[:5]:
        _say(f"  {problem}")


def _show(seed: int, scope: str) -> int:
    story = _OF_SEEDS.get(scope, stories.of_seed)(seed)
    for planned in story.schedules:
        _say(dataclasses.asdict(planned))
    record = playing.play((seed, story))
    _say("\n".join(record.trace))
    problems = oracle.judge(record)
    _say("\n".join(problems) or "nothing is wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
