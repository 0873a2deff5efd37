"""Whatever is typed, the answer is an expression or InvalidExpression, and it comes quickly."""

from random import Random

from duepoint.expressions import compile_expression
from tests.property.expressions import fuzzing, generators


def test_any_text_is_an_expression_or_one_documented_error():
    # `python -m tests.property.expressions.fuzzing` tries a million.
    tries = generators.samples(6_000)
    report = fuzzing.run(tries, "fuzz")
    assert report.broken == []
    assert report.answers.total() == tries
    assert report.answers["accepted"] > tries / 20
    assert set(report.answers) == fuzzing.REASONS | {"accepted"}
    # The bar is 5 ms on a quiet machine; CPU time still grows when others use the caches.
    assert report.slowest[0] <= 0.025, report.slowest


def test_the_fuzzer_sees_an_exception_that_is_not_documented(monkeypatch):
    def broken(text, **options):
        raise IndexError(text)

    monkeypatch.setattr(fuzzing, "compile_expression", broken)
    report = fuzzing.run(20, "broken")
    assert len(report.broken) == 20
    assert "IndexError" in report.broken[0][1]


def test_the_order_of_questions_does_not_change_the_answers():
    # What was last used is remembered inside; a form just made has nothing to remember.
    rng = Random("order")
    for _ in range(generators.samples(40)):
        sample = generators.near_changes(rng, special=True, seconds=rng.random() < 0.3)
        zone = rng.choice(("America/New_York", "Australia/Lord_Howe", "Etc/UTC"))
        used = compile_expression(sample.text, time_zone=zone)
        instants = [rng.randint(0, 1 << 52)]
        for _ in range(20):
            near = instants[-1] + rng.choice((1, 10**6, 10**9, 10**11)) * rng.randint(-50, 50)
            instants.append(min(max(near, 0), 1 << 52))
        remembered = [(used.next_after(at), used.previous_before(at)) for at in instants]
        compile_expression.__globals__["_cached"].cache_clear()
        compile_expression.__globals__["_shared"].cache_clear()
        fresh = compile_expression(sample.text, time_zone=zone)
        assert fresh is not used
        for at_us, answers in reversed(list(zip(instants, remembered, strict=True))):
            assert (fresh.next_after(at_us), fresh.previous_before(at_us)) == answers, sample.text
