"""Numbers are ASCII decimals: what Python takes beyond them is no number here."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.files.decimal_text import parse_real, parse_whole

WRONG = [
    "",
    " ",
    "1_6",
    "\uff11\uff16",
    "\u0664",
    "0x10",
    "1e999",
    "-inf",
    "nan",
    "Infinity",
    "1,5",
    "1 6",
    "9" * 6000,
    "16us",
]


@pytest.mark.parametrize("text", ["16", "16.0", "1.6e1", " 16 ", "+16", "160e-1", "016"])
def test_sixteen_is_sixteen_however_it_is_written(text: str) -> None:
    assert (parse_whole(text), parse_real(text)) == (16, 16.0)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_ascii_decimal_is_no_number(text: str) -> None:
    assert (parse_whole(text), parse_real(text)) == (None, None)


@pytest.mark.parametrize("text", ["64.9", "1e-1", ".5", "-0.25"])
def test_a_fraction_is_real_and_not_whole(text: str) -> None:
    assert parse_real(text) == float(text)
    assert parse_whole(text) is None


@given(st.integers(-(2**70), 2**70))
def test_whole_numbers_come_back_exactly(number: int) -> None:
    assert parse_whole(str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_real_numbers_come_back_exactly(number: float) -> None:
    assert parse_real(repr(number)) == number


@given(st.text(max_size=8))
def test_only_ascii_is_read(text: str) -> None:
    value = parse_real(text)
    assert value is None or (text.isascii() and math.isfinite(value))
