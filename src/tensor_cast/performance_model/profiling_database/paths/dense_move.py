"""A dense-attention operator at another context, batch, number of heads, head size or number of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import LeafOp, Requests
from tensor_cast.operators.tensor import Shape
from tensor_cast.performance_model.profiling_database.data_source import Miss
from tensor_cast.performance_model.profiling_database.exact.attention import average_context, normalise_query
from tensor_cast.performance_model.profiling_database.paths.moving import at_role, immovable, reshaped

__all__ = ["moved_attention"]

_AXES = ("seq", "batch", "heads", "head_dim", "q_tokens")


def moved_attention(leaf: LeafOp, axes: Mapping[str, int]) -> LeafOp:
    """The operator there; every request gets the same context, and the tokens are spread as evenly as they go."""
    query, key = at_role(leaf, "query"), at_role(leaf, "key")
    if query is None or key is None or not leaf.inputs[key].shape or not set(axes) <= set(_AXES):
        raise immovable(leaf, axes, _AXES)
    shape, held = leaf.inputs[query].shape, leaf.inputs[key].shape
    normal = normalise_query(shape, held[-1])
    if normal is None:
        raise immovable(leaf, axes)
    names = ("q_tokens", "heads", "head_dim")
    tokens, heads, size = (axes.get(name, value) for name, value in zip(names, normal, strict=True))
    if len(shape) == 4:
        tokens = axes.get("batch", tokens)
    moved = _query_shape(shape, tokens, heads, size)
    inputs = {query: moved}
    for place in (key, at_role(leaf, "value")):
        if place is not None and leaf.inputs[place].shape and leaf.inputs[place].shape[-1] == normal[2]:
            inputs[place] = (*leaf.inputs[place].shape[:-1], size)
    outputs = {place: moved for place, spec in enumerate(leaf.outputs) if spec.shape == shape}
    return reshaped(leaf, inputs, outputs, _requests(leaf, axes, tokens, is_batched=len(shape) == 4))


def _query_shape(shape: Shape, tokens: int, heads: int, size: int) -> Shape:
    if len(shape) == 4:
        return (tokens, heads, 1, size)
    return (tokens, heads, size) if len(shape) == 3 else (tokens, heads * size)


def _requests(leaf: LeafOp, axes: Mapping[str, int], tokens: int, *, is_batched: bool) -> Requests | None:
    """The request lengths at the asked context, batch and tokens."""
    known = leaf.requests
    if not set(axes) & {"seq", "batch", "q_tokens"}:
        return known
    count = None if known is None else known.count
    if known is None or count is None:
        if "seq" in axes or ("batch" in axes and not is_batched):
            raise InvalidValueError(f"query_many: {leaf.name} has no request lengths to move along {', '.join(axes)}")
        return known
    batch = axes.get("batch", count)
    context = average_context(leaf)
    length = axes.get("seq", 0 if isinstance(context, Miss) else context)
    changes: dict[str, Shape | None] = {}
    if "seq" in axes or (known.kv_lens is not None and "batch" in axes):
        changes["kv_lens"] = (length,) * batch
    if known.query_lens is not None and set(axes) & {"batch", "q_tokens"}:
        each, more = divmod(tokens, batch) if batch else (0, 0)
        changes["query_lens"] = tuple(each + (i < more) for i in range(batch))
    if known.block_table_shape is not None and "batch" in axes:
        changes["block_table_shape"] = (batch, *known.block_table_shape[1:])
    return replace(known, **changes)  # type: ignore[arg-type]
