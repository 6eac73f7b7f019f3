"""Operators as written on a command line: tensors, attributes, request lengths, JSON files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from castq.streams import label, read_text
from tensor_cast.errors import CastqError, InvalidValueError
from tensor_cast.operators.leaf import AttrValue, LeafOp, Requests
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = [
    "build_operator",
    "parse_attribute",
    "parse_lengths",
    "parse_shape",
    "parse_tensor",
    "read_operators",
    "shown",
]

_FORM: Final = "SHAPE:DTYPE[:FORMAT][@ROLE], for example 4096,5120:bf16"
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_REPEAT: Final = re.compile(r"(?:([0-9]+)[x*])?([0-9]+)")
_MAX_REQUESTS: Final = 1_000_000
_LARGEST: Final = 2**63 - 1
_MOST_DIGITS: Final = 19
_MOST_SHOWN: Final = 80


def shown(text: str) -> str:
    """The text as a message quotes it: a long one is cut."""
    return repr(text) if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]!r}... ({len(text)} characters)"


def _whole(text: str, where: str) -> int:
    """A whole number in ASCII digits.  Raises InvalidValueError beyond 64 bits, ValueError for anything else."""
    if _WHOLE.fullmatch(text.strip()) is None:
        raise ValueError(text)
    digits = text.strip().lstrip("+-").lstrip("0") or "0"
    if len(digits) > _MOST_DIGITS or int(digits) > _LARGEST:
        raise InvalidValueError(f"{where}: {shown(text)} is larger than 2**63 - 1")
    return -int(digits) if text.strip().startswith("-") else int(digits)


def parse_shape(text: str, where: str = "shape") -> Shape:
    """`4096,5120` as a shape; `()` is the scalar shape."""
    bare = text.strip()
    if bare in ("", "()"):
        return ()
    try:
        return tuple(_whole(part, where) for part in bare.strip("()").rstrip(",").split(","))
    except InvalidValueError:
        raise
    except ValueError:
        raise InvalidValueError(
            f"{where}: shape {shown(text)} is not a comma-separated list of integers such as 4096,5120"
        ) from None


def parse_tensor(text: str, where: str = "tensor") -> TensorSpec:
    """One tensor, `SHAPE:DTYPE[:FORMAT][@ROLE]`.  Raises InvalidValueError naming `where` and what is allowed."""
    from tensor_cast.dtypes import canonical_dtype

    body, _, role = text.partition("@")
    parts = [part.strip() for part in body.split(":")]
    if len(parts) not in (2, 3) or not parts[1]:
        raise InvalidValueError(f"{where} {shown(text)}: expected {_FORM}")
    shape = parse_shape(parts[0], f"{where} {shown(text)}")
    try:
        dtype = canonical_dtype(parts[1])
        return TensorSpec(shape, dtype, parts[2].upper() if len(parts) == 3 else "ND", role.strip())
    except CastqError as error:
        raise InvalidValueError(f"{where} {shown(text)}: {error}") from None


def parse_lengths(text: str, where: str) -> tuple[int, ...]:
    """`1,1,1` as lengths; `8x4096` stands for eight times 4096, and both may be mixed."""
    lengths: list[int] = []
    for part in text.split(","):
        found = _REPEAT.fullmatch(part.strip())
        if found is None:
            got = f"expected lengths such as 1,1,1 or 8x4096, got {shown(part)}"
            raise InvalidValueError(f"{where} {shown(text)}: {got}")
        count = _whole(found[1] or "1", where)
        if len(lengths) + count > _MAX_REQUESTS:
            raise InvalidValueError(f"{where} {shown(text)}: more than {_MAX_REQUESTS} requests")
        lengths += [_whole(found[2], where)] * count
    return tuple(lengths)


def parse_attribute(text: str) -> tuple[str, AttrValue]:
    """`name=value`: a number, true, false, none, a comma-separated list of integers, or text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InvalidValueError(f"--attr {shown(text)}: expected NAME=VALUE, for example topk_limit=2048")
    return name.strip(), _attribute(value.strip(), f"--attr {name.strip()}")


def _attribute(text: str, where: str) -> AttrValue:
    words: dict[str, AttrValue] = {"true": True, "false": False, "none": None, "inf": math.inf, "-inf": -math.inf}
    if text.lower() in words:
        return words[text.lower()]
    if _WHOLE.fullmatch(text):
        return _whole(text, where)
    if _NUMBER.fullmatch(text):
        return _finite(text, where)
    parts = text.rstrip(",").split(",")
    if "," in text and all(_WHOLE.fullmatch(part.strip()) for part in parts):
        return tuple(_whole(part, where) for part in parts)
    return tuple(part.strip() for part in text.split(",")) if "," in text else text


def _finite(text: str, where: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidValueError(f"{where}: {shown(text)} is too large a number")
    return value


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
    from tensor_cast.files.json_text import JsonError, parse_json
    from tensor_cast.operators.records import leaf_from_json

    try:
        document = parse_json(read_text(where))
    except JsonError as error:
        place = label(where) if error.line is None else f"{label(where)}:{error.line}"
        raise InvalidValueError(f"{place}: not valid JSON: {error.problem}") from None
    many = isinstance(document, list)
    leaves = []
    for i, item in enumerate(document if many else [document]):
        try:
            leaves.append(leaf_from_json(_object(item)))
        except CastqError as error:
            place = f"operator {i + 1}: " if many else ""
            raise InvalidValueError(f"{label(where)}: {place}{error}") from None
    if not leaves:
        raise InvalidValueError(f"{label(where)}: the list of operators is empty")
    return leaves, many


def _object(item: object) -> dict[str, object]:
    if not isinstance(item, dict):
        raise InvalidValueError(f"operator JSON: expected an object, got {type(item).__name__}")
    return item
