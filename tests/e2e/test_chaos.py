"""A short run of ``make chaos``: the nemesis, the recorder and the checker work together."""

from __future__ import annotations

from tests.chaos import checker, playing, quietness
from tests.chaos.load import Amounts
from tests.chaos.plan import FaultKind, Rhythm

#: After which the installation is well again within seconds.
KINDS = (
    FaultKind.KILL_WORKER,
    FaultKind.REDIS_CUT,
    FaultKind.REDIS_LOST_REPLIES,
    FaultKind.API_LATE_REPLIES,
    FaultKind.RECEIVER_CUTS,
)


async def test_a_few_faults_at_once_lose_and_double_nothing(duepoint_plane, tmp_path):
    wanted = playing.Wanted(
        seed=1,
        kind="single",
        rhythm=Rhythm(rounds=1, faults_seconds=6, calm_seconds=10, every_seconds=1),
        amounts=Amounts(webhooks=5, streams=4, jobs=2, edited=2, members=2),
        kinds=KINDS,
        recovery_seconds=10,
    )
    played = await playing.play(wanted, duepoint_plane, tmp_path, tmp_path / "history", print)
    history = played.recorder.history
    assert checker.judge(history) == []
    assert list(quietness.complaints(history, played.kinds)) == []
    assert {one.kind for one in history.faults} == set(KINDS)
