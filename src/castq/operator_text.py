"""Operators as written on a command line: tensors, attributes, request lengths, JSON files."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import Final

from tensor_cast.decimal_text import parse_real
from tensor_cast.errors import CastqError, InvalidValueError
from tensor_cast.leaf import AttrValue, LeafOp, Requests, Shape, TensorSpec

__all__ = ["build_operator", "parse_attribute", "parse_lengths", "parse_shape", "parse_tensor", "read_operators"]

_FORM: Final = "SHAPE:DTYPE[:FORMAT][@ROLE], for example 4096,5120:bf16"
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_REPEAT: Final = re.compile(r"(?:([0-9]{1,20})[x*])?([0-9]{1,20})")
_MAX_REQUESTS: Final = 1_000_000


def parse_shape(text: str, where: str = "shape") -> Shape:
    """`4096,5120` as a shape; `()` is the scalar shape."""
    bare = text.strip()
    if bare in ("", "()"):
        return ()
    parts = [part.strip() for part in bare.strip("()").rstrip(",").split(",")]
    if not all(_WHOLE.fullmatch(part) for part in parts):
        problem = f"{where}: shape {text!r} is not a comma-separated list of integers such as 4096,5120"
        raise InvalidValueError(problem)
    return tuple(int(part) for part in parts)


def parse_tensor(text: str, where: str = "tensor") -> TensorSpec:
    """One tensor, `SHAPE:DTYPE[:FORMAT][@ROLE]`.  Raises InvalidValueError naming `where` and what is allowed."""
    from tensor_cast.dtypes import canonical_dtype

    body, _, role = text.partition("@")
    parts = [part.strip() for part in body.split(":")]
    if len(parts) not in (2, 3) or not parts[1]:
        raise InvalidValueError(f"{where} {text!r}: expected {_FORM}")
    shape = parse_shape(parts[0], f"{where} {text!r}")
    try:
        dtype = canonical_dtype(parts[1])
        return TensorSpec(shape, dtype, parts[2].upper() if len(parts) == 3 else "ND", role.strip())
    except CastqError as error:
        raise InvalidValueError(f"{where} {text!r}: {error}") from None


def parse_lengths(text: str, where: str) -> tuple[int, ...]:
    """`1,1,1` as lengths; `8x4096` stands for eight times 4096, and both may be mixed."""
    lengths: list[int] = []
    for part in text.split(","):
        found = _REPEAT.fullmatch(part.strip())
        if found is None:
            raise InvalidValueError(f"{where} {text!r}: expected lengths such as 1,1,1 or 8x4096, got {part!r}")
        count = int(found[1] or 1)
        if len(lengths) + count > _MAX_REQUESTS:
            raise InvalidValueError(f"{where} {text!r}: more than {_MAX_REQUESTS} requests")
        lengths += [int(found[2])] * count
    return tuple(lengths)


def parse_attribute(text: str) -> tuple[str, AttrValue]:
    """`name=value`: a number, true, false, none, a comma-separated list of integers, or text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InvalidValueError(f"--attr {text!r}: expected NAME=VALUE, for example topk_limit=2048")
    return name.strip(), _attribute(value.strip())


def _attribute(text: str) -> AttrValue:
    words: dict[str, AttrValue] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    if "," in text:
        try:
            return parse_shape(text)
        except InvalidValueError:
            return tuple(part.strip() for part in text.split(","))
    if _WHOLE.fullmatch(text):
        return int(text)
    number = parse_real(text)
    return text if number is None else number


def build_operator(
    op: str,
    inputs: Iterable[str],
    outputs: Iterable[str] = (),
    attrs: Iterable[str] = (),
    *,
    query_lens: str | None = None,
    kv_lens: str | None = None,
    phase: str | None = None,
    block_table: str | None = None,
) -> LeafOp:
    """The leaf operator that the options of `castq lookup` describe."""
    tensors = [parse_tensor(text, f"--input {i + 1}") for i, text in enumerate(inputs)]
    results = [parse_tensor(text, f"--output {i + 1}") for i, text in enumerate(outputs)]
    named = dict(parse_attribute(text) for text in attrs)
    leaf = LeafOp.build(op, tensors, results, named)
    table = parse_shape(block_table, "--block-table") if block_table else None
    if table is None:
        bound = leaf.role("block_table")
        table = bound.shape if bound is not None else None
    requests = _requests(query_lens, kv_lens, phase, table)
    return LeafOp(leaf.name, leaf.inputs, leaf.outputs, leaf.attrs, requests)


def _requests(query_lens: str | None, kv_lens: str | None, phase: str | None, table: Shape | None) -> Requests | None:
    if query_lens is None and kv_lens is None and phase is None and table is None:
        return None
    queries = parse_lengths(query_lens, "--query-lens") if query_lens is not None else None
    contexts = parse_lengths(kv_lens, "--kv-lens") if kv_lens is not None else None
    return Requests(queries, contexts, phase, table)  # type: ignore[arg-type]


def read_operators(where: str) -> tuple[list[LeafOp], bool]:
    """The operators of a JSON file (`-` reads standard input), and whether they came as a list.

    Raises InvalidValueError naming the file, the operator's place in the list and the field that is wrong.
    """
    from tensor_cast.records import leaf_from_json

    label = "standard input" if where == "-" else where
    try:
        document = json.loads(_text(where))
    except json.JSONDecodeError as error:
        raise InvalidValueError(f"{label}:{error.lineno}: not valid JSON: {error.msg}") from None
    many = isinstance(document, list)
    leaves = []
    for i, item in enumerate(document if many else [document]):
        try:
            leaves.append(leaf_from_json(json.dumps(item)))
        except CastqError as error:
            place = f"operator {i + 1}: " if many else ""
            raise InvalidValueError(f"{label}: {place}{error}") from None
    if not leaves:
        raise InvalidValueError(f"{label}: the list of operators is empty")
    return leaves, many


def _text(where: str) -> str:
    try:
        if where == "-":
            return sys.stdin.read()
        with open(where, encoding="utf-8-sig") as stream:
            return stream.read()
    except UnicodeDecodeError:
        raise InvalidValueError(f"{where}: not UTF-8 text") from None
    except OSError as error:
        raise InvalidValueError(f"{where}: cannot be read: {error.strerror or error}") from None
