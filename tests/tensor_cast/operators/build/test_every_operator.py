"""Every operator, constructed: name, roles, shapes, dtypes and attributes worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

import calls_of_attention
import calls_of_experts
import calls_of_products
from operator_calls import Call, inputs_of, outputs_of
from tensor_cast.operators import build
from tensor_cast.operators.records import leaf_from_json, leaf_to_json
from tensor_cast.operators.signatures import assign_roles, known_operators, signature

CALLS = (*calls_of_attention.CALLS, *calls_of_experts.CALLS, *calls_of_products.CALLS)
IDS = [f"{i}-{call.name}" for i, call in enumerate(CALLS)]


def base(name: str) -> str:
    return name.rpartition(".")[0]


@pytest.mark.parametrize("call", CALLS, ids=IDS)
def test_a_call_is_as_written_by_hand(call: Call) -> None:
    leaf = call.leaf
    assert leaf.name == call.name
    assert inputs_of(leaf) == call.inputs
    assert outputs_of(leaf) == call.outputs
    assert dict(leaf.attrs) == call.attrs
    assert leaf.source == "direct"


def test_every_known_operator_has_a_constructor() -> None:
    built = {base(call.leaf.name) for call in CALLS}
    assert built - {"aten.to"} == set(known_operators())


def test_every_constructor_is_called() -> None:
    """What `build` offers beyond constructors are sizes and what follows from a batch."""
    sizes = {"AttentionSizes", "ExpertSizes", "LatentSizes", "block_table_shape", "cache_blocks"}
    named = {call.leaf.name.split(".")[1] for call in CALLS}
    families = {
        "cast": "to",
        "dynamic_quantize": "dynamic_quantize_symmetric",
        "layer_norm": "native_layer_norm",
        "rms_norm_dynamic_quant": "rms_norm_dynamic_quant_symmetric",
        "add_rms_norm_dynamic_quant": "add_rms_norm_dynamic_quant_symmetric",
    }
    assert {families.get(name, name) for name in set(build.__all__) - sizes} <= named


@pytest.mark.parametrize("call", CALLS, ids=IDS)
def test_arguments_and_attributes_are_those_of_the_signature(call: Call) -> None:
    arguments = signature(call.name)
    if arguments is None:
        assert call.name == "aten.to.dtype"
        return
    order = {argument.name: i for i, argument in enumerate(arguments)}
    roles = [spec.role for spec in call.leaf.inputs]
    assert [order[role] for role in roles] == sorted(order[role] for role in roles)
    assert {argument.name for argument in arguments if argument.is_tensor and not argument.optional} <= set(roles)
    assert set(call.attrs) <= set(order) | {"stage"}


def roles_can_be_told(call: Call) -> bool:
    """Optional tensors are filled from the left, and in a dispatch only vectors are no weights."""
    if "dispatch" in call.name:
        return all(spec.rank < 2 for spec in call.leaf.inputs if "scale" in spec.role)
    optional = [argument.name for argument in signature(call.name) or () if argument.is_tensor and argument.optional]
    present = [name for name in optional if call.leaf.role(name) is not None]
    return optional[: len(present)] == present


@pytest.mark.parametrize("call", CALLS, ids=IDS)
def test_bare_tensors_get_the_same_roles_where_they_tell(call: Call) -> None:
    bare = tuple(replace(spec, role="") for spec in call.leaf.inputs)
    assert (assign_roles(call.name, bare) == call.leaf.inputs) == roles_can_be_told(call)


@pytest.mark.parametrize("call", CALLS, ids=IDS)
def test_a_call_survives_json(call: Call) -> None:
    assert leaf_from_json(leaf_to_json(call.leaf)) == call.leaf
