"""The leaf descriptor: a value that can be compared, hashed and kept, with errors that name what is wrong."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from tensor_cast import LeafOp, Requests, TensorSpec
from tensor_cast.errors import InvalidValueError, UnknownNameError


def mm(m: int = 4) -> LeafOp:
    return LeafOp.build("aten.mm.default", [((m, 8), "bf16"), ((8, 3), "bf16")], [((m, 3), "bf16")])


def test_equal_calls_are_one_key() -> None:
    first, second = mm(), mm()
    assert first is not second
    assert first == second
    assert hash(first) == hash(second)
    assert {first: "kept"}[second] == "kept"
    assert mm(5) != first


@pytest.mark.parametrize(
    "other",
    [
        LeafOp("aten.bmm.default", mm().inputs, mm().outputs),
        LeafOp("aten.mm.default", mm().inputs[::-1], mm().outputs),
        LeafOp("aten.mm.default", mm().inputs, ()),
        LeafOp("aten.mm.default", mm().inputs, mm().outputs, (("bias", True),)),
        LeafOp("aten.mm.default", mm().inputs, mm().outputs, requests=Requests((1,), (4,))),
        LeafOp("aten.mm.default", mm().inputs, mm().outputs, source="child:tensor_cast.mlapo.default#0"),
    ],
    ids=["name", "inputs", "outputs", "attrs", "requests", "source"],
)
def test_every_field_tells_calls_apart(other: LeafOp) -> None:
    assert other != mm()


def test_attributes_have_one_order_and_lists_become_tuples() -> None:
    inputs = mm().inputs
    forms = [
        LeafOp("x.y.z", inputs, attrs=(("rank_group", (0, 1)), ("dim", 0))),
        LeafOp("x.y.z", inputs, attrs=(("dim", 0), ("rank_group", (0, 1)))),
        LeafOp.build("x.y.z", list(inputs), attrs={"rank_group": [0, 1], "dim": 0}),  # type: ignore[dict-item]
    ]
    assert forms[0] == forms[1] == forms[2]
    assert len(set(forms)) == 1
    assert forms[0].attrs == (("dim", 0), ("rank_group", (0, 1)))
    assert forms[0].attributes == {"dim": 0, "rank_group": (0, 1)}


def test_nothing_can_be_assigned() -> None:
    leaf = mm()
    for target, name in ((leaf, "name"), (leaf.inputs[0], "shape"), (Requests((1,), (1,)), "kv_lens")):
        with pytest.raises(FrozenInstanceError):
            setattr(target, name, ())


def test_scalars_are_inputs_but_not_tensors_a_row_records() -> None:
    leaf = LeafOp.build("aten.add.Tensor", [((4, 8), "bf16"), ((), "float32")])
    assert [spec.shape for spec in leaf] == [(4, 8), ()]
    assert [spec.shape for spec in leaf.tensors] == [(4, 8)]
    assert (leaf.inputs[0].rank, leaf.inputs[0].numel, leaf.inputs[1].numel) == (2, 32, 1)


def test_roles_are_found_by_name() -> None:
    leaf = LeafOp.build("tensor_cast.cat.default", [((1, 8), "bf16"), ((2, 8), "bf16")])
    assert leaf.role("tensors") == leaf.inputs[0]
    assert leaf.roles("tensors") == leaf.inputs
    assert leaf.role("weight") is None
    assert leaf.roles("weight") == ()


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ("4,8", InvalidValueError, "inputs: expected a list of tensors, got str"),
        ([(4, 8)], InvalidValueError, r"inputs\[0\]: shape 4 is not a list of integers"),
        ([((4, 8),)], InvalidValueError, r"inputs\[0\]: expected \(shape, dtype\) or \(shape, dtype, format\), got"),
        ([((4, 8), "bf16"), "x"], InvalidValueError, r"inputs\[1\]: expected \(shape, dtype\)"),
        ([((4, 8), "bf16"), ("48", "bf16")], InvalidValueError, r"inputs\[1\]: shape '48' is not a list of integers"),
        ([((4.5, 8), "bf16")], InvalidValueError, r"inputs\[0\]: shape \(4.5, 8\) is not a list of integers"),
        (
            [((-4, 8), "bf16")],
            InvalidValueError,
            r"inputs\[0\]: tensor shape \(-4, 8\): every dimension must be an int",
        ),
        ([((True, 8), "bf16")], InvalidValueError, r"inputs\[0\]: tensor shape \(True, 8\): every dimension must be"),
        ([((2**40, 2**40), "bf16")], InvalidValueError, r"inputs\[0\]: tensor shape has more than 2\*\*63 - 1 elem"),
        (
            [((4, 8), "bf16"), ((8, 3), "bfloat61")],
            UnknownNameError,
            r"inputs\[1\]: unknown dtype 'bfloat61' \(did you mean 'bfloat16'\?\); known: bfloat16, bool",
        ),
    ],
)
def test_a_wrong_tensor_is_named(inputs: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        LeafOp.build("aten.mm.default", inputs)


def test_values_that_cannot_be_keys_are_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"x\.y\.z: tensors, attributes and lengths must be tuples"):
        LeafOp("x.y.z", list(mm().inputs))  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="unhashable type: 'dict'"):
        LeafOp.build("x.y.z", [], attrs={"options": {"a": 1}})  # type: ignore[dict-item]
    with pytest.raises(InvalidValueError, match=r"x\.y\.z: tensors"):
        LeafOp("x.y.z", (), requests=Requests([1], [1]))  # type: ignore[arg-type]


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "context", "phase"),
    [
        ((7, 5), (7, 5), "prefill"),
        ((1, 1), (4096, 3000), "decode"),
        ((1,), (1,), "prefill"),  # fits both; prefill wins
        ((1, 1), (1, 9), "decode"),
        ((7, 1), (7, 9), "mixed"),
        ((4,), (9,), "mixed"),  # a chunk of a longer prefill
        ((0, 7), (9, 7), "prefill"),  # a request without new tokens is not active
        ((0, 1), (9, 9), "decode"),
        ((0, 0), (9, 9), None),
        ((), (), None),
        (None, (9,), None),
        ((1,), None, None),
        (None, None, None),
    ],
)
def test_the_phase_follows_from_the_lengths(
    query: tuple[int, ...] | None, context: tuple[int, ...] | None, phase: str | None
) -> None:
    assert Requests(query, context).phase == phase


def test_an_explicit_phase_wins() -> None:
    assert Requests((1,), (9,), "mixed").phase == "mixed"
    assert Requests(None, None, "decode").phase == "decode"


def test_cumulative_lengths_have_no_leading_zero() -> None:
    assert Requests((2, 3), (9, 9)).cu_query_lens == (2, 5)
    assert Requests((), ()).cu_query_lens == ()
    assert Requests(None, (9,)).cu_query_lens is None


def test_the_number_of_requests_needs_one_vector() -> None:
    assert Requests((2, 3), None).count == 2
    assert Requests(None, (9, 9, 9)).count == 3
    assert Requests().count is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1, 2), (3,)), "query_lens has 2 requests but kv_lens has 1"),
        (((-1,), (3,)), r"query_lens: lengths must be >= 0, got \(-1,\)"),
        ((None, (3, -2)), r"kv_lens: lengths must be >= 0, got \(3, -2\)"),
        ((None, None, "prefil"), "phase 'prefil': expected one of prefill, decode, mixed"),
    ],
)
def test_contradictory_requests_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidValueError, match=f"^{message}$"):
        Requests(*arguments)


def test_a_tensor_spec_has_defaults() -> None:
    assert TensorSpec((4,), "int8") == TensorSpec((4,), "int8", "ND", "")
