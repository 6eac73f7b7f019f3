"""Proposed sizes against every choice of sizes, and the share of steps that no size covers."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castq.shapes.suggest import best_sizes, cost_of, share_beyond
from tensor_cast.errors import InvalidValueError

histograms = st.dictionaries(st.integers(1, 9), st.integers(1, 20).map(float), min_size=1)


@given(histograms, st.integers(1, 5))
def test_no_other_list_of_so_many_sizes_pads_less(histogram: dict[int, float], count: int) -> None:
    found = best_sizes(histogram, count, 9)
    lists = ((*chosen, 9) for few in range(count) for chosen in combinations(range(1, 9), few))
    assert found.wasted == pytest.approx(min(cost_of(sizes, histogram) for sizes in lists))
    assert found.sizes[-1] == 9
    assert len(found.sizes) <= count
    assert share_beyond(found.sizes, histogram) == 0


def test_waste_and_what_lies_beyond_by_hand() -> None:
    histogram = {3: 10.0, 8: 5.0, 12: 15.0}
    assert cost_of((1, 2, 4, 8), histogram) == 10 / (4 * 10 + 8 * 5 + 12 * 15)
    assert share_beyond((1, 2, 4, 8), histogram) == 0.5
    assert share_beyond((), histogram) == 1


@pytest.mark.parametrize(
    ("histogram", "count", "words"),
    [
        ({4: 1.0}, 0, "0 sizes: at least 1"),
        ({4: 0.0}, 2, "no batches to choose sizes for"),
        ({10: 1.0}, 2, "a batch of 10 is above the ceiling 9"),
    ],
)
def test_refusals(histogram: dict[int, float], count: int, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        best_sizes(histogram, count, 9)
