"""The interchange form as JSON: closed and versioned, so that an unknown node or version is refused, never guessed."""

from __future__ import annotations

import json
import math
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from serq import ir
from serq.errors import SerqError
from serq.ir.check import BINARY_OPERATORS, check_program
from serq.json_text import strict_json

__all__ = ["from_json", "schema", "to_json"]

_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_TAG = "node"
_FOLD = "Fold"
"""A chain folded from the left, `((a + b) + c) + d` or `max(max(a, b), c)`, written as its terms: it may be long."""
_FOLDED_CALLS = frozenset({"max", "min"})


def _refuse(message: str) -> SerqError:
    return SerqError("interchange", message)


# --- writing ----------------------------------------------------------------------------------------------------------


def to_json(program: ir.Program, *, indent: int | None = None) -> str:
    """The program as JSON text; equal programs give equal text."""
    try:
        data = {"version": ir.IR_VERSION, **_written(program, ir.Program)}
    except RecursionError:
        raise _refuse("the program is nested too deeply to be written") from None
    return json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False)


def _written(value: Any, kind: Any) -> Any:
    chain = _chain(value)
    if len(chain) > 2:
        terms = [_written(one, ir.Expr) for one in chain]
        return {_TAG: _FOLD, "op": value.op if isinstance(value, ir.Binary) else value.name, "terms": terms}
    if is_dataclass(value) and not isinstance(value, type):
        found: dict[str, Any] = {_TAG: type(value).__name__} if _is_choice(kind) else {}
        hints = get_type_hints(type(value))
        for field in _carried(type(value)):
            item = getattr(value, field.name)
            if field.default is MISSING or item != field.default:
                found[field.name] = _written(item, hints[field.name])
        return found
    if isinstance(value, tuple):
        inner = get_args(kind)
        repeated = len(inner) == 2 and inner[1] is Ellipsis
        kinds = [inner[0]] * len(value) if repeated else list(inner)
        if get_origin(kind) in (Union, types.UnionType):
            return _written(value, next(one for one in inner if get_origin(one) is tuple))
        return [_written(one, one_kind) for one, one_kind in zip(value, kinds, strict=True)]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _chain(value: Any) -> list[ir.Expr]:
    """The terms of a chain of one operation folded from the left."""
    terms: list[ir.Expr] = []
    one = value
    while (pair := _pair(one)) is not None and pair[0] == (_pair(value) or ("",))[0]:
        terms.append(pair[2])
        one = pair[1]
    return [one, *reversed(terms)]


def _pair(value: Any) -> tuple[str, ir.Expr, ir.Expr] | None:
    if isinstance(value, ir.Binary):
        return value.op, value.left, value.right
    if isinstance(value, ir.Call) and value.name in _FOLDED_CALLS and len(value.args) == 2 and value.ref is None:
        return value.name, value.args[0], value.args[1]
    return None


def _carried(kind: Any) -> list[Any]:
    """The fields that belong to the program and not to the machine it stands on."""
    return [field for field in fields(kind) if not field.metadata.get("local")]


def _is_choice(kind: Any) -> bool:
    """Is this one of several nodes, so that the text must say which?"""
    return sum(1 for one in get_args(kind) if isinstance(one, type) and is_dataclass(one)) > 1


# --- reading ----------------------------------------------------------------------------------------------------------


def from_json(text: str) -> ir.Program:
    """The program a JSON text holds.

    Raises `SerqError` of kind `interchange` for another version, an unknown node or field, a value of a wrong type, or
    a reference to something that is not there.
    """
    try:
        data = strict_json(text)
    except ValueError as error:
        raise _refuse(f"this is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise _refuse("a program is a JSON object")
    version = data.pop("version", None)
    if version != ir.IR_VERSION or isinstance(version, bool):
        raise _refuse(f"version {version!r} is not {ir.IR_VERSION}, the one this release reads")
    try:
        program = _read(data, ir.Program, "program")
        check_program(program)
    except RecursionError:
        raise _refuse("the text is nested too deeply") from None
    assert isinstance(program, ir.Program)
    return program


def _read(data: Any, kind: Any, where: str) -> Any:
    if isinstance(kind, type) and is_dataclass(kind):
        return _node(data, kind, where)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _choice(data, get_args(kind), where)
    if origin is tuple:
        return _tuple(data, get_args(kind), where)
    return _plain(data, kind, where)


def _node(data: Any, kind: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise _refuse(f"{where} is a {kind.__name__}, written as an object")
    hints = get_type_hints(kind)
    known = {field.name: field for field in _carried(kind)}
    for name in data:
        if name not in known and name != _TAG:
            raise _refuse(f"{where}: a {kind.__name__} has no field {name!r}")
    if data.get(_TAG, kind.__name__) != kind.__name__:
        raise _refuse(f"{where}: the node {data[_TAG]!r} cannot stand here")
    values = {}
    for name, field in known.items():
        if name in data:
            values[name] = _read(data[name], hints[name], f"{where}.{name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _refuse(f"{where}: a {kind.__name__} needs the field {name!r}")
    return kind(**values)


def _choice(data: Any, kinds: tuple[Any, ...], where: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    nodes = {kind.__name__: kind for kind in kinds if isinstance(kind, type) and is_dataclass(kind)}
    if isinstance(data, dict) and len(nodes) > 1:
        name = data.get(_TAG)
        if name == _FOLD and ir.Binary in kinds:
            return _fold(data, where)
        if not isinstance(name, str) or name not in nodes:
            raise _refuse(f"{where}: the node {name!r} is unknown here")
        return _node(data, nodes[name], where)
    rest = [kind for kind in kinds if kind is not type(None)]
    if len(rest) == 1:
        return _read(data, rest[0], where)
    raise _refuse(f"{where} is an object with a {_TAG!r}")


def _fold(data: dict[str, Any], where: str) -> ir.Expr:
    op, terms = str(data.get("op")), data.get("terms")
    known = op in BINARY_OPERATORS or op in _FOLDED_CALLS
    if set(data) != {_TAG, "op", "terms"} or not known or not isinstance(terms, list) or len(terms) < 3:
        raise _refuse(f"{where}: a {_FOLD} has an operation and at least 3 terms")
    total: Any = None
    for index, term in enumerate(terms):
        value = _read(term, ir.Expr, f"{where}.terms[{index}]")
        if total is None:
            total = value
        else:
            total = ir.Call(op, (total, value)) if op in _FOLDED_CALLS else ir.Binary(op, total, value)
    folded: ir.Expr = total
    return folded


def _tuple(data: Any, kinds: tuple[Any, ...], where: str) -> Any:
    if not isinstance(data, list):
        raise _refuse(f"{where} is a list")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_read(one, kinds[0], f"{where}[{index}]") for index, one in enumerate(data))
    if len(data) != len(kinds):
        raise _refuse(f"{where} holds {len(kinds)} values, not {len(data)}")
    pairs = enumerate(zip(data, kinds, strict=True))
    return tuple(_read(one, kind, f"{where}[{index}]") for index, (one, kind) in pairs)


def _plain(data: Any, kind: Any, where: str) -> Any:
    if kind is float:
        if isinstance(data, str) and data in _SPECIAL:
            return _SPECIAL[data]
        if isinstance(data, int | float) and not isinstance(data, bool):
            return _number(data, where)
    elif isinstance(data, kind) and (kind is bool or not isinstance(data, bool)):
        return data
    raise _refuse(f"{where} is a {kind.__name__}, not {data!r}")


def _number(data: float, where: str) -> float:
    try:
        return float(data)
    except OverflowError:
        raise _refuse(f"{where} is too large a number") from None


# --- the schema -------------------------------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """The JSON schema of the interchange form, made from its dataclasses; `schema.json` is this, written out."""
    definitions: dict[str, Any] = {}
    body = _described(ir.Program, definitions)
    root = definitions.pop("Program")
    del body
    root["properties"] = {"version": {"const": ir.IR_VERSION}, **root["properties"]}
    root["required"] = ["version", *root["required"]]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "serQ interchange form"}
    return {**head, **root, "$defs": dict(sorted(definitions.items()))}


def _described(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if isinstance(kind, type) and is_dataclass(kind):
        return _described_node(kind, definitions)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        choices = [{"type": "null"} if one is type(None) else _described(one, definitions) for one in inner]
        if _is_choice(kind):
            choices = [_tagged(one, choice) for one, choice in zip(inner, choices, strict=True)]
        if ir.Binary in inner:
            choices.append(_described_fold(definitions))
        return {"anyOf": choices}
    if origin is tuple:
        if len(inner) == 2 and inner[1] is Ellipsis:
            return {"type": "array", "items": _described(inner[0], definitions)}
        items = [_described(one, definitions) for one in inner]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if kind is float:
        return {"anyOf": [{"type": "number"}, {"enum": list(_SPECIAL)}]}
    return {"type": {int: "integer", str: "string", bool: "boolean"}[kind]}


def _described_fold(definitions: dict[str, Any]) -> dict[str, Any]:
    if _FOLD not in definitions:
        definitions[_FOLD] = {}
        definitions[_FOLD] = {
            "type": "object",
            "properties": {
                _TAG: {"const": _FOLD},
                "op": {"enum": sorted(BINARY_OPERATORS | _FOLDED_CALLS)},
                "terms": {"type": "array", "items": _described(ir.Expr, definitions), "minItems": 3},
            },
            "required": [_TAG, "op", "terms"],
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{_FOLD}"}


def _tagged(kind: Any, choice: dict[str, Any]) -> dict[str, Any]:
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return choice
    return {**choice, "properties": {_TAG: {"const": kind.__name__}}, "required": [_TAG]}


def _described_node(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}
        hints = get_type_hints(kind)
        properties = {field.name: _described(hints[field.name], definitions) for field in _carried(kind)}
        required = [
            field.name for field in _carried(kind) if field.default is MISSING and field.default_factory is MISSING
        ]
        definitions[kind.__name__] = {
            "type": "object",
            "properties": {_TAG: {"const": kind.__name__}, **properties},
            "required": required,
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{kind.__name__}"}
