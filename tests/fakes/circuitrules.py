"""The rules of ``circuits.lua`` in Python, for the queue in memory and for tests of the script."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from duepoint.runs.circuit import BUCKETS, Bucket, Circuit, CircuitRule, News


def after(known: Circuit | None, news: News, *, now_us: int, rule: CircuitRule) -> Circuit | None:
    """The circuit after the calls in ``news``; None = nothing bad is known."""
    circuit = known or Circuit()
    if not circuit.is_open:
        return _after_calls(circuit, news, now_us=now_us, rule=rule)
    if not news.probe_us or news.probe_us != circuit.probe_us:
        return circuit
    if not news.calls:
        return msgspec.structs.replace(circuit, probe_us=0)
    if news.calls[-1] > 0:
        return None
    wait_us = min(2 * circuit.wait_us, rule.most_wait_us)
    return msgspec.structs.replace(
        circuit,
        until_us=now_us + wait_us,
        wait_us=wait_us,
        probe_us=0,
        cause=news.cause or circuit.cause,
    )


def asked(circuit: Circuit | None, news: News, *, now_us: int) -> tuple[Circuit | None, int]:
    """The circuit after the question of ``news``, and the probe that was given; 0 = none."""
    if circuit is None or not news.ask_us or not circuit.is_open:
        return circuit, 0
    if now_us < max(circuit.until_us, circuit.probe_us):
        return circuit, 0
    probe_us = now_us + news.ask_us
    return msgspec.structs.replace(circuit, probe_us=probe_us), probe_us


def _after_calls(circuit: Circuit, news: News, *, now_us: int, rule: CircuitRule) -> Circuit | None:
    cause = news.cause or circuit.cause
    number = now_us * BUCKETS // rule.window_us
    buckets = [bucket for bucket in circuit.buckets if bucket.number > number - BUCKETS]
    if not buckets or buckets[-1].number < number:
        buckets.append(Bucket(number, 0, 0))
    in_a_row = circuit.in_a_row
    for run in news.calls:
        last = buckets[-1]
        failed, succeeded = max(-run, 0), max(run, 0)
        buckets[-1] = Bucket(number, last.succeeded + succeeded, last.failed + failed)
        in_a_row = in_a_row + failed if failed else 0
        if failed and _is_too_much(buckets, in_a_row, rule):
            return Circuit(
                is_open=True,
                in_a_row=in_a_row,
                until_us=now_us + rule.first_wait_us,
                wait_us=rule.first_wait_us,
                since_us=now_us,
                cause=cause,
            )
    if not in_a_row and not any(bucket.failed for bucket in buckets):
        return None
    return Circuit(in_a_row=in_a_row, buckets=tuple(buckets), cause=cause)


def _is_too_much(buckets: Sequence[Bucket], in_a_row: int, rule: CircuitRule) -> bool:
    failed = sum(bucket.failed for bucket in buckets)
    calls = failed + sum(bucket.succeeded for bucket in buckets)
    return in_a_row >= rule.most_in_a_row or (calls >= rule.least_calls and 2 * failed > calls)
