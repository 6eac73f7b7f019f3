"""The operators of column tables at other coordinates: what `describe` reads, written back.

Each move is the counterpart of one describer: described again, the moved operator lies at the asked axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import LeafOp, Requests
from tensor_cast.operators.tensor import Shape
from tensor_cast.performance_model.profiling_database.columns.facts.attention import QueryHeads
from tensor_cast.performance_model.profiling_database.columns.facts.facts import (
    ColumnFacts,
    RefusedError,
    base_name,
)
from tensor_cast.performance_model.profiling_database.columns.facts.request_lengths import uniform_lengths
from tensor_cast.performance_model.profiling_database.paths.moving import (
    at_role,
    immovable,
    move_product,
    reshaped,
    with_rows,
)

__all__ = ["MOVES"]

Move = Callable[[LeafOp, ColumnFacts, Mapping[str, int]], LeafOp]


def _place(leaf: LeafOp, *names: str) -> int:
    """The position of an input that the describer has found."""
    place = at_role(leaf, *names)
    if place is None:
        raise immovable(leaf, names)
    return place


def _check(leaf: LeafOp, axes: Iterable[str], allowed: Iterable[str]) -> None:
    if not set(axes) <= set(allowed):
        raise immovable(leaf, axes, allowed)


def _matmul(leaf: LeafOp, facts: ColumnFacts, axes: Mapping[str, int]) -> LeafOp:
    _check(leaf, axes, ("M", "K", "N"))
    old = {axis: int(facts.axes[axis]) for axis in ("M", "K", "N")}
    new = {**old, **axes}
    x, weight = _place(leaf, "x"), _place(leaf, "weight")
    left, right = leaf.inputs[x].shape, leaf.inputs[weight].shape
    first = right[1] == old["N"] and right[0] in (old["K"], old["K"] // 2)
    held = right[0] if first else right[1]
    rows = (*with_rows(left, new["M"])[:-1], _share(leaf, new["K"], old["K"], left[-1]))
    inner = _share(leaf, new["K"], old["K"], held)
    matrices = {x: rows, weight: (inner, new["N"]) if first else (new["N"], inner)}
    return move_product(leaf, matrices, (old["M"], old["N"]), (new["M"], new["N"]), rows)


def _share(leaf: LeafOp, new: int, old: int, held: int) -> int:
    """A dimension that holds K, or half of it where two values are packed in one."""
    packed = 1 if held == old else 2
    if new % packed:
        raise InvalidValueError(f"query_many: {leaf.name} packs two values in one, so K must be even, got {new}")
    return new // packed


def _quantize(leaf: LeafOp, facts: ColumnFacts, axes: Mapping[str, int]) -> LeafOp:
    """Scales of one value for each row follow the rows; any other scale stays."""
    _check(leaf, axes, ("M", "K"))
    rows, columns = axes.get("M", int(facts.axes["M"])), axes.get("K", int(facts.axes["K"]))
    x = _place(leaf, "x")
    shape = leaf.inputs[x].shape
    per_row = facts.regime["scale_mode"] == "per_token"
    inputs = {x: (*with_rows(shape, rows)[:-1], columns)}
    scale = at_role(leaf, "scale")
    if scale is not None and per_row:
        inputs[scale] = _per_row(leaf.inputs[scale].shape, rows)
    outputs = {0: (*with_rows(leaf.outputs[0].shape, rows)[:-1], columns)} if leaf.outputs else {}
    for place in range(1, len(leaf.outputs)) if per_row else ():
        outputs[place] = _per_row(leaf.outputs[place].shape, rows)
    return reshaped(leaf, inputs, outputs)


def _per_row(shape: Shape, rows: int) -> Shape:
    return with_rows(shape, rows, 1 if len(shape) > 1 and shape[-1] == 1 else 0)


def _lengths(leaf: LeafOp, facts: ColumnFacts, axes: Mapping[str, int]) -> tuple[int, int, Requests]:
    """Requests, new tokens of each, and the request lengths at the asked axes.

    A cached prefix (`step`) stays as it is while `isl` moves; `kv` moves the prefix.
    """
    lengths = uniform_lengths(leaf)
    if "step" in axes and "kv" in axes:
        raise immovable(leaf, ("step",), set(facts.axes) - {"step"})
    batch, isl = axes.get("batch_size", lengths.batch_size), axes.get("isl", lengths.isl)
    kv = axes.get("kv", isl + axes.get("step", lengths.step))
    known: Requests = leaf.requests or Requests()
    table = known.block_table_shape
    requests = replace(
        known,
        query_lens=None if known.query_lens is None else (isl,) * batch,
        kv_lens=(kv,) * batch,
        block_table_shape=(batch, *table[1:]) if table and "batch_size" in axes else table,
    )
    return batch, isl, requests


def _attention(leaf: LeafOp, facts: ColumnFacts, axes: Mapping[str, int]) -> LeafOp:
    """Where every query head has its own KV head, the KV heads follow."""
    _check(leaf, axes, ("isl", "kv", "step", "batch_size", "num_heads"))
    batch, isl, requests = _lengths(leaf, facts, axes)
    query, key = _place(leaf, "query"), _place(leaf, "key")
    shape, cache = leaf.inputs[query].shape, leaf.inputs[key].shape
    heads = axes.get("num_heads", QueryHeads.of(leaf.inputs[query], cache[-1]).count)
    moved = _query(shape, cache[-1], batch, isl, heads)
    inputs = {query: moved}
    if facts.regime["kv_heads"] == "MHA":
        for place in (key, at_role(leaf, "value")):
            if place is not None and len(leaf.inputs[place].shape) > 2:
                held = leaf.inputs[place].shape
                inputs[place] = (*held[:-2], heads, held[-1])
    outputs = {place: moved for place, spec in enumerate(leaf.outputs) if spec.shape == shape}
    return reshaped(leaf, inputs, outputs, requests)


def _query(shape: Shape, head_dim: int, batch: int, isl: int, heads: int) -> Shape:
    """`(T, h*d)`, `(1, T, h*d)`, `(T, h, d)` or `(B, h, S, d)`, as it was."""
    if len(shape) == 4:
        return (batch, heads, isl, head_dim)
    if len(shape) == 3 and shape[-1] == head_dim:
        return (batch * isl, heads, head_dim)
    return (*shape[:-2], batch * isl, heads * head_dim)


def _latent(leaf: LeafOp, facts: ColumnFacts, axes: Mapping[str, int]) -> LeafOp:
    name = base_name(leaf)
    if name == "latent_bmm":
        return _projection(leaf, facts, axes)
    _check(leaf, axes, ("isl", "kv", "step", "batch_size", "num_heads"))
    batch, isl, requests = _lengths(leaf, facts, axes)
    if name == "latent_attention_block":
        hidden = _place(leaf, "hidden")
        moved = reshaped(leaf, {hidden: with_rows(leaf.inputs[hidden].shape, batch * isl)}, None, requests)
        attrs = (
            tuple({**leaf.attributes, "num_heads": axes["num_heads"]}.items()) if "num_heads" in axes else leaf.attrs
        )
        return replace(moved, attrs=attrs)
    query = _place(leaf, "query")
    shape = with_rows(leaf.inputs[query].shape, batch * isl, 2)
    heads = axes.get("num_heads", shape[-2])
    return reshaped(leaf, {query: (*shape[:-2], heads, shape[-1])}, None, requests)


def _projection(leaf: LeafOp, facts: ColumnFacts, axes: Mapping[str, int]) -> LeafOp:
    _check(leaf, axes, ("num_tokens", "num_heads"))
    x, weight = _place(leaf, "x"), _place(leaf, "weight")
    shape, matrices = leaf.inputs[x].shape, leaf.inputs[weight].shape
    tokens = axes.get("num_tokens", int(facts.axes["num_tokens"]))
    heads = axes.get("num_heads", matrices[0])
    rows = (heads, tokens) if shape[0] == matrices[0] else (tokens, heads)
    outputs = {
        place: (*rows, spec.shape[-1]) for place, spec in enumerate(leaf.outputs) if spec.shape[:-1] == shape[:-1]
    }
    return reshaped(leaf, {x: (*rows, shape[-1]), weight: (heads, *matrices[1:])}, outputs)


def _experts(leaf: LeafOp, facts: ColumnFacts, axes: Mapping[str, int]) -> LeafOp:
    _check(leaf, axes, facts.axes)
    (tokens,) = axes.values()
    x, ids = _place(leaf, "x"), _place(leaf, "topk_indices", "expert_indices")
    rows = math.prod(leaf.inputs[x].shape[:-1])
    outputs = {
        place: with_rows(spec.shape, tokens)
        for place, spec in enumerate(leaf.outputs)
        if spec.shape and math.prod(spec.shape[:-1]) == rows
    }
    return reshaped(leaf, {place: with_rows(leaf.inputs[place].shape, tokens) for place in (x, ids)}, outputs)


def _sparse(leaf: LeafOp, facts: ColumnFacts, axes: Mapping[str, int]) -> LeafOp:
    """How tokens are grouped into requests stays: the number of requests is no axis.

    Weights, indices and, beside a cache, the fresh values go with the tokens.
    """
    _check(leaf, axes, ("isl", "kv", "step"))
    batch, isl, requests = _lengths(leaf, facts, axes)
    query = _place(leaf, "query")
    shape = leaf.inputs[query].shape
    lead = (batch, isl) if len(shape) == 4 else (batch * isl,)
    inputs = {query: (*lead, *shape[-2:])}
    fresh = () if leaf.role("kv_dependency") is None else ("kv",)
    for role in ("topk_indices", "weights", *fresh):
        place = at_role(leaf, role)
        held = () if place is None else leaf.inputs[place].shape
        if place is not None and held:
            inputs[place] = (*lead, held[-1]) if len(held) == len(lead) + 1 else with_rows(held, batch * isl)
    outputs = {
        place: (*lead, *spec.shape[len(lead) :])
        for place, spec in enumerate(leaf.outputs)
        if spec.shape[: len(lead)] == shape[: len(lead)]
    }
    return reshaped(leaf, inputs, outputs, requests)


_FAMILIES: Final[dict[str, Move]] = {
    "matmul": _matmul,
    "quantize": _quantize,
    "attention": _attention,
    "latent_attention": _latent,
    "experts": _experts,
    "sparse_attention": _sparse,
}


def _refusing(move: Move) -> Move:
    def checked(leaf: LeafOp, facts: ColumnFacts, axes: Mapping[str, int]) -> LeafOp:
        try:
            return move(leaf, facts, axes)
        except RefusedError as refusal:
            raise InvalidValueError(f"query_many: {leaf.name} cannot be moved: {refusal.miss}") from None

    return checked


MOVES: Final[Mapping[str, Move]] = MappingProxyType({family: _refusing(move) for family, move in _FAMILIES.items()})
