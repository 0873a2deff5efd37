"""Laws that every expression keeps, whatever its form: next, previous and count agree."""

from hypothesis import given, settings
from hypothesis import strategies as st

from duepoint.expressions import compile_expression, expression, merged, windowed
from tests.property.expressions import generators

instants_us = st.integers(-(10**15), expression.LAST_US + 10**15)
texts = st.one_of(
    st.integers(100, 10**9).map(lambda ms: f"@every {ms}ms"),
    st.integers(0, expression.LAST_US // 10**6).map(lambda second: f"@at {second}"),
    st.randoms(use_true_random=False).map(
        lambda rng: generators.sample(rng, special=True, seconds=rng.random() < 0.3).text
    ),
)


@st.composite
def expressions(draw):
    """One or several texts, sometimes in a window."""
    anchor_us = draw(st.integers(0, expression.LAST_US // 2))
    zone = draw(st.sampled_from(("Etc/UTC", "Europe/London", "Australia/Lord_Howe")))
    members = [
        compile_expression(text, time_zone=zone, anchor_us=anchor_us)
        for text in draw(st.lists(texts, min_size=1, max_size=3))
    ]
    ends_us = st.none() | st.integers(0, expression.LAST_US)
    return windowed(merged(members), start_us=draw(ends_us), end_us=draw(ends_us))


@settings(max_examples=generators.samples(60), deadline=None, derandomize=True)
@given(expressions(), instants_us)
def test_next_previous_and_count_agree(slots, instant_us):
    next_us = slots.next_after(instant_us)
    if next_us is None:
        assert slots.previous_before(expression.LAST_US + 1) in {
            None,
            slots.previous_before(min(instant_us, expression.LAST_US) + 1),
        }
        return
    assert instant_us < next_us <= expression.LAST_US
    assert next_us >= expression.FIRST_US
    assert slots.previous_before(next_us + 1) == next_us
    assert slots.count_between(instant_us, next_us) == 1
    assert slots.count_between(instant_us, next_us - 1) == 0
    previous_us = slots.previous_before(next_us)
    if previous_us is not None:
        assert previous_us <= instant_us
        assert slots.next_after(previous_us) == next_us
