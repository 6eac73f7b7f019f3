"""One sum for every answer, with the bits of IEEE additions from left to right."""

from __future__ import annotations

import ast
from fractions import Fraction
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import tensor_cast
from tensor_cast.arithmetic import total

PACKAGE = Path(tensor_cast.__file__).parent
WRITES_NO_ANSWERS = ("demo",)


def test_a_sum_that_compensation_would_change() -> None:
    assert total([0.1] * 10).hex() == "0x1.fffffffffffffp-1"  # a compensated sum is 1
    assert total([1e16, 1.0, 1.0]) == 1e16
    assert total([]) == 0.0


@given(st.lists(st.floats(0, 1e12), max_size=20))
def test_each_partial_sum_is_rounded_once(values: list[float]) -> None:
    expected = 0.0
    for value in values:
        expected = float(Fraction(expected) + Fraction(value))
    assert total(values).hex() == expected.hex()


def test_built_in_sums_are_over_whole_numbers() -> None:
    """A new one belongs in this list, or should be `total`."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name not in WRITES_NO_ANSWERS:
            calls = [
                node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
            ]
            found |= {ast.unparse(call) for call in calls if ast.unparse(call.func) == "sum"}
    assert found <= {
        "sum(input_splits)",
        "sum(output_splits)",
        "sum(requests.query_lens)",
        "sum(rows)",
        "sum((shape[at] for shape in shapes))",
        "sum((cell.count('\\n') for cell in cells))",
        "sum((abs(a.numel - h.numel) for a, h in zip(match.asked, held, strict=True)))",
        "sum((1 for argument in arguments if not argument.optional))",
        "sum((1 for argument in lists if not argument.optional))",
        "sum((1 for rank in rest if rank > 1))",
        "sum((len(group) for group in self.groups))",
        "sum((row.message_bytes for row in rows))",
        "sum((count for _, count in self.misses))",
        "sum(_contexts(requests))",
        "sum(counts)",
        "sum(queries)",
        "sum(query_lens)",
        "sum(requests.kv_lens)",
        "sum(received)",
        "sum(splits)",
    }


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "sum"
