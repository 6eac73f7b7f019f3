"""From an operator record of a tracer, or from JSON, to a `LeafOp`.

A record is any object with `func`, `args`, `kwargs` and `out` whose tensors have `shape` and `dtype`; nothing is
imported from the tracer's library.  Values of the sequence vectors are read through `tolist()`; a meta tensor has none,
so its lengths stay unknown and whatever needs them refuses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from tensor_cast.dtypes import canonical_dtype, semantic_dtype
from tensor_cast.errors import CastqError, InvalidValueError, nearest
from tensor_cast.files.json_text import JsonError, parse_json
from tensor_cast.operators.leaf import AttrValue, LeafOp, Phase, Requests
from tensor_cast.operators.signatures import Argument, signature
from tensor_cast.operators.tensor import TensorSpec

__all__ = ["OperatorRecord", "as_leaf", "leaf_from_json", "leaf_from_record", "leaf_to_json"]


@runtime_checkable
class OperatorRecord(Protocol):
    """What a tracer hands over for one operator call."""

    @property
    def func(self) -> object: ...
    @property
    def args(self) -> tuple[object, ...]: ...
    @property
    def kwargs(self) -> Mapping[str, object]: ...
    @property
    def out(self) -> object: ...


def as_leaf(op: LeafOp | OperatorRecord) -> LeafOp:
    """The leaf descriptor of `op`; a `LeafOp` is returned as it is.  Raises InvalidValueError for anything else."""
    if isinstance(op, LeafOp):
        return op
    if hasattr(op, "func") and hasattr(op, "args"):
        return leaf_from_record(op)
    raise InvalidValueError(f"expected a LeafOp or a record with func, args, kwargs and out; got {type(op).__name__}")


def leaf_from_record(record: OperatorRecord) -> LeafOp:
    """Bind a record's arguments to their roles and keep what a lookup can use."""
    name = str(record.func).removeprefix("torch.ops.")
    arguments = signature(name)
    kwargs = dict(getattr(record, "kwargs", None) or {})
    bound = _bind(arguments, tuple(record.args), kwargs)
    inputs: list[TensorSpec] = []
    attrs: dict[str, AttrValue] = {}
    vectors: dict[str, object] = {}
    for role, value in bound:
        tensors = list(_tensors(value))
        if tensors:
            inputs.extend(_spec(tensor, role) for tensor in tensors)
            if role in ("seq_lens", "query_lens"):
                vectors[role] = tensors[0]
        elif role:
            attribute = _attribute(value)
            if attribute is not None:
                attrs[role] = attribute
    outputs = tuple(_spec(tensor, "") for tensor in _tensors(getattr(record, "out", None)))
    requests = _requests(vectors, inputs, attrs)
    return LeafOp(name, tuple(inputs), outputs, tuple(sorted(attrs.items())), requests)


def _bind(
    arguments: tuple[Argument, ...] | None, args: tuple[object, ...], kwargs: dict[str, object]
) -> list[tuple[str, object]]:
    if arguments is None:
        named = [(f"arg{i}" if not _has_tensor(value) else "", value) for i, value in enumerate(args)]
        return [*named, *(("" if _has_tensor(value) else key, value) for key, value in kwargs.items() if key != "out")]
    bound = []
    for i, value in enumerate(args):
        bound.append((arguments[i].name if i < len(arguments) else f"arg{i}", value))
    positions = {argument.name: i for i, argument in enumerate(arguments)}
    for key, value in kwargs.items():
        if key in positions or not _has_tensor(value):
            bound.append((key, value))
    return sorted(bound, key=lambda pair: positions.get(pair[0], len(positions)))


def _is_tensor(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _has_tensor(value: object) -> bool:
    return _is_tensor(value) or (isinstance(value, list | tuple) and any(_is_tensor(item) for item in value))


def _tensors(value: object) -> Iterable[object]:
    if _is_tensor(value):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            if _is_tensor(item):
                yield item


def _spec(tensor: Any, role: str) -> TensorSpec:
    shape = tuple(int(dim) for dim in tensor.shape)
    return TensorSpec(shape, semantic_dtype(str(tensor.dtype)), getattr(tensor, "format", None) or "ND", role)


def _attribute(value: object) -> AttrValue:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        if all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            return tuple(int(item) for item in value)
        return tuple(str(item) for item in value)
    return None if value is None else str(value).removeprefix("torch.")


def _values(tensor: object) -> tuple[int, ...] | None:
    if getattr(tensor, "is_meta", False) or not hasattr(tensor, "tolist"):
        return None
    try:
        return tuple(int(value) for value in tensor.tolist())
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        return None


def _requests(vectors: dict[str, object], inputs: list[TensorSpec], attrs: dict[str, AttrValue]) -> Requests | None:
    table = next((spec.shape for spec in inputs if spec.role == "block_table"), None)
    phase = attrs.get("phase")
    if not vectors and table is None and phase is None:
        return None
    kv_lens = _values(vectors["seq_lens"]) if "seq_lens" in vectors else None
    query_lens = _values(vectors["query_lens"]) if "query_lens" in vectors else None
    if kv_lens is not None and query_lens is not None and len(kv_lens) != len(query_lens):
        kv_lens = query_lens = None
    return Requests(query_lens, kv_lens, _phase(phase), table)


def _phase(value: object) -> Phase | None:
    return value if value == "prefill" or value == "decode" or value == "mixed" else None


_JSON_KEYS = ("op", "inputs", "outputs", "attrs", "requests", "source")
_TENSOR_KEYS = ("shape", "dtype", "format", "role")
# JSON has no such numbers: as an attribute they are written {"float": "inf"}.
_FLOAT = "float"
_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_LARGEST = 2**63 - 1
_REQUEST_KEYS = ("query_lens", "kv_lens", "phase", "block_table_shape")


def leaf_from_json(document: str | Mapping[str, Any]) -> LeafOp:
    """A leaf from its JSON form; see `leaf_to_json`.  Raises InvalidValueError naming the field that is wrong."""
    if isinstance(document, str):
        try:
            document = parse_json(document)
        except JsonError as error:
            place = "" if error.line is None else f", line {error.line}"
            raise InvalidValueError(f"operator JSON{place}: {error.problem}") from None
    if not isinstance(document, Mapping):
        raise InvalidValueError(f"operator JSON: expected an object, got {type(document).__name__}")
    _only(document, _JSON_KEYS, "")
    if not isinstance(document.get("op"), str):
        raise InvalidValueError("operator JSON: field 'op' must be a string such as 'aten.mm.default'")
    attrs = document.get("attrs") or {}
    if not isinstance(attrs, Mapping):
        raise InvalidValueError("operator JSON: field 'attrs' must be an object")
    inputs = [_json_spec(item, f"inputs[{i}]") for i, item in enumerate(_json_list(document, "inputs"))]
    outputs = [_json_spec(item, f"outputs[{i}]") for i, item in enumerate(_json_list(document, "outputs"))]
    return LeafOp.build(
        document["op"],
        inputs,
        outputs,
        {str(key): _json_attribute(value, f"attrs.{key}") for key, value in attrs.items()},
        _json_requests(document.get("requests")),
        _json_text(document, "source", "direct", ""),
    )


def _only(document: Mapping[str, object], allowed: tuple[str, ...], where: str) -> None:
    for key in document:
        if key not in allowed:
            raise InvalidValueError(
                f"operator JSON: unknown field {where + str(key)!r}{nearest(str(key), allowed)}; "
                f"allowed: {', '.join(allowed)}"
            )


def _json_text(document: Mapping[str, object], key: str, default: str, where: str) -> str:
    value = document.get(key, default)
    if not isinstance(value, str):
        raise InvalidValueError(f"operator JSON: {where}{key} must be text, got {value!r}")
    return value


def _json_attribute(value: object, where: str) -> AttrValue:
    if isinstance(value, Mapping) and list(value) == [_FLOAT] and value[_FLOAT] in _NOT_FINITE:
        return _NOT_FINITE[value[_FLOAT]]
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, dict | list) for item in items):
        raise InvalidValueError(f"operator JSON: {where} must be a number, text, boolean or a flat list, got {value!r}")
    return _attribute(value)


def _json_list(document: Mapping[str, object], key: str) -> list[object]:
    value = document.get(key, [])
    if not isinstance(value, list):
        raise InvalidValueError(f"operator JSON: field {key!r} must be a list of tensors")
    return value


def _json_spec(item: object, where: str) -> TensorSpec:
    if not isinstance(item, Mapping) or "shape" not in item or "dtype" not in item:
        raise InvalidValueError(f"operator JSON: {where} must be an object with 'shape' and 'dtype'")
    _only(item, _TENSOR_KEYS, f"{where}.")
    shape = item["shape"]
    if not isinstance(shape, list) or any(isinstance(d, bool) or not isinstance(d, int) for d in shape):
        raise InvalidValueError(f"operator JSON: {where}.shape must be a list of integers, got {shape!r}")
    dtype, storage, role = (
        _json_text(item, key, default, f"{where}.") for key, default in (("dtype", ""), ("format", "ND"), ("role", ""))
    )
    try:
        return TensorSpec(tuple(shape), canonical_dtype(dtype), storage, role)
    except CastqError as error:
        raise InvalidValueError(f"operator JSON: {where}: {error}") from None


def _json_requests(value: object) -> Requests | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidValueError("operator JSON: field 'requests' must be an object")
    _only(value, _REQUEST_KEYS, "requests.")
    vectors: dict[str, tuple[int, ...] | None] = {}
    for key in ("query_lens", "kv_lens", "block_table_shape"):
        items = value.get(key)
        if items is not None and (not isinstance(items, list) or any(type(i) is not int for i in items)):
            raise InvalidValueError(f"operator JSON: requests.{key} must be a list of integers, got {items!r}")
        if items is not None and any(abs(item) > _LARGEST for item in items):
            raise InvalidValueError(f"operator JSON: requests.{key}: a length is larger than 2**63 - 1")
        vectors[key] = None if items is None else tuple(items)
    try:
        return Requests(vectors["query_lens"], vectors["kv_lens"], value.get("phase"), vectors["block_table_shape"])
    except InvalidValueError as error:
        raise InvalidValueError(f"operator JSON: requests: {error}") from None


def leaf_to_json(leaf: LeafOp) -> dict[str, object]:
    """A JSON-able form that `leaf_from_json` reads back to an equal leaf."""
    document: dict[str, Any] = {"op": leaf.name, "inputs": [_spec_json(spec) for spec in leaf.inputs]}
    if leaf.outputs:
        document["outputs"] = [_spec_json(spec) for spec in leaf.outputs]
    if leaf.attrs:
        document["attrs"] = {key: _attribute_json(value) for key, value in leaf.attrs}
    if leaf.requests is not None:
        fields = {
            "query_lens": leaf.requests.query_lens,
            "kv_lens": leaf.requests.kv_lens,
            "block_table_shape": leaf.requests.block_table_shape,
        }
        document["requests"] = {key: list(value) for key, value in fields.items() if value is not None}
        if leaf.requests.explicit_phase is not None:
            document["requests"]["phase"] = leaf.requests.explicit_phase
    if leaf.source != "direct":
        document["source"] = leaf.source
    return document


def _attribute_json(value: AttrValue) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    return list(value) if isinstance(value, tuple) else value


def _spec_json(spec: TensorSpec) -> dict[str, object]:
    document: dict[str, object] = {"shape": list(spec.shape), "dtype": spec.dtype}
    if spec.format != "ND":
        document["format"] = spec.format
    if spec.role:
        document["role"] = spec.role
    return document


def with_attrs(leaf: LeafOp, **attrs: AttrValue) -> LeafOp:
    """The same leaf with attributes added or replaced."""
    merged = dict(leaf.attrs) | attrs
    return replace(leaf, attrs=tuple(sorted(merged.items())))
