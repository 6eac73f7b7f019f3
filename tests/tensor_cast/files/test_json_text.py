"""JSON that two readers could take differently is refused, by both of our readers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serq.json_text import strict_json
from tensor_cast.errors import InvalidValueError
from tensor_cast.files.json_text import parse_json

REFUSED = {
    "cut": '{"a": 1',
    "two documents": "1 2",
    "NaN": '{"a": NaN}',
    "infinity": "[-Infinity]",
    "a float beyond doubles": "[1e999]",
    "a key twice": '{"a": 1, "b": {"c": 1, "c": 1}}',
    "a lone surrogate": '["\\ud800"]',
    "a lone surrogate in a key": '{"\\udfff": 1}',
    "100 000 lists": "[" * 100_000,
    "100 000 objects": '{"a":' * 100_000,
    "6 000 digits": "[" + "9" * 6000 + "]",
    "a raw control character": '["\x1b"]',
}

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**200), 10**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("read", [parse_json, strict_json])
def test_refused(read: Any, text: Any) -> None:
    with pytest.raises(ValueError):
        read(text)


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_the_reason_is_one_short_line(text: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_json(text)
    assert "\n" not in str(caught.value)
    assert 5 < len(str(caught.value)) < 120
    assert str(caught.value).isprintable()


@given(PLAIN)
def test_what_is_json_is_read(document: Any) -> None:
    text = json.dumps(document)
    assert parse_json(text) == document == strict_json(text)


def test_pairs_of_surrogates_are_one_character() -> None:
    assert parse_json('"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_the_line_of_a_mistake_is_told() -> None:
    with pytest.raises(InvalidValueError, match="line 3: Expecting value"):
        parse_json('{"a": 1,\n"b":\nx}')


def test_nesting_that_is_allowed_and_that_is_not() -> None:
    assert parse_json("[" * 60 + "]" * 60)
    with pytest.raises(InvalidValueError, match="too many nested values"):
        parse_json("[" * 100 + "]" * 100)


def test_numbers_at_the_edge_of_doubles() -> None:
    assert parse_json("1.7976931348623157e308") == 1.7976931348623157e308
    assert math.copysign(1, parse_json("-0.0")) == -1
