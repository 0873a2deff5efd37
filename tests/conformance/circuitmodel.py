"""When calls open a circuit, said in Python: the model that the script ``circuits`` is held to."""

from __future__ import annotations

from duepoint.delayqueue.circuits import BUCKETS, Bucket, Circuit, CircuitRule, News


def after(known: Circuit | None, news: News, *, now_us: int, rule: CircuitRule) -> Circuit | None:
    """The circuit after these calls, none of which is a probe; None = nothing bad is known."""
    circuit = known or Circuit()
    if circuit.is_open:
        return circuit
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


def _is_too_much(buckets: list[Bucket], in_a_row: int, rule: CircuitRule) -> bool:
    failed = sum(bucket.failed for bucket in buckets)
    calls = failed + sum(bucket.succeeded for bucket in buckets)
    return in_a_row >= rule.most_in_a_row or (calls >= rule.least_calls and 2 * failed > calls)
