"""Rows kept slot by slot, keys kept as mixes: what comes out is what a list and a dictionary would give."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_cast import TensorSpec
from tensor_cast.performance_model.profiling_database.tables.key_index import KeyIndex
from tensor_cast.performance_model.profiling_database.tables.slot_rows import SlotRows, Slots
from tensor_cast.performance_model.profiling_database.tables.tensor_columns import Coded, by_width

SPECS = [TensorSpec((n, 8), dtype) for n in (1, 2, 3) for dtype in ("INT8", "DT_BF16")]
PARTS = st.one_of(st.integers(0, 3), st.tuples(st.integers(0, 2), st.integers(0, 2)), st.sampled_from(["a", "b"]))


@given(st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from(SPECS), min_size=1, max_size=4)), max_size=5))
def test_rows_are_those_that_were_added(parts: list[tuple[bool, list[TensorSpec]]]) -> None:
    rows: SlotRows[Slots | None] = SlotRows()
    expected: list[Slots | None] = []
    for as_columns, specs in parts:
        if as_columns:
            rows.add_columns([specs, specs[::-1]])
            expected += zip(specs, specs[::-1], strict=True)
        else:
            rows.add_rows([(specs[0], None), None])
            expected += [(specs[0], None), None]
    assert list(rows) == expected
    assert [rows[i] for i in range(len(rows))] == expected
    assert rows[-2:] == expected[-2:]
    with pytest.raises(IndexError):
        rows[len(rows)]


@settings(deadline=None)  # the first example imports numpy
@given(st.lists(st.tuples(PARTS, PARTS), min_size=1, max_size=30), st.tuples(PARTS, PARTS))
def test_keys_find_their_rows_in_order(keys: list[tuple[Hashable, Hashable]], asked: tuple[Hashable, Hashable]) -> None:
    index = KeyIndex()
    first, second = ([key[i] for key in keys] for i in (0, 1))
    index.file([index.codes(first), index.codes(second)], range(len(keys)))
    index.seal()
    for key in (*keys, asked):
        assert index.get(key) == [i for i, other in enumerate(keys) if other == key]


def test_a_part_that_is_none_is_not_filed() -> None:
    index = KeyIndex()
    index.file([index.codes(["a", None, "a"])], [4, 5, 3])
    assert index.seal().get(["a"]) == [3, 4]
    assert KeyIndex().seal().get(["a"]) == []


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1))
def test_a_coded_column_is_the_column(column: list[int]) -> None:
    coded = Coded.of(column)
    assert [coded.distinct[code] for code in coded.codes.tolist()] == column
    assert len(set(coded.distinct)) == len(coded.distinct)


def test_rows_of_equal_width_come_together() -> None:
    a, b = SPECS[:2]
    specs = [(a, b), (a,), (), (b, a)]
    found = [(list(columns.rows), columns.slots) for columns in by_width(specs, [0, 1, 2, 3])]
    assert found == [([1], ((a,),)), ([0, 3], ((a, b), (b, a)))]
    assert [list(columns.rows) for columns in by_width(specs, [3])] == [[3]]
