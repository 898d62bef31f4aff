"""Whatever is done to an input: an error for users or none. scripts/fuzz.py does the same for longer, in children
whose memory and time are limited."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import fuzzing

CHANGES = st.lists(
    st.tuples(st.sampled_from(fuzzing.KINDS), st.floats(0, 1), st.integers(0, 1 << 16)), min_size=1, max_size=5
)


@pytest.mark.parametrize("name", list(fuzzing.targets()))
def test_seeds_are_read(name):
    """Else the changes below change nothing."""
    for seed in fuzzing.targets()[name][1]:
        if name != "source":
            fuzzing.try_one(name, seed)


@pytest.mark.parametrize("name", list(fuzzing.targets()))
def test_any_change(name):
    slow = name.startswith("verify") or name == "source"

    @settings(max_examples=12 if slow else 60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.sampled_from(fuzzing.targets()[name][1]), CHANGES)
    def run(seed, changes):
        fuzzing.try_one(name, fuzzing.changed(seed, changes))

    run()
