"""What an entry's `operands` say: which dtypes, and which granularity of scales, its rows were measured with.

operands:                                   # one line per reading of the operator; the first that fits is meant
  - {quant: fp8, x: [float8_e4m3fn], weight: [float8_e4m3fn], x_scale: [float32], w_scale: [float32]}
  - {quant: fp8_block, x: [float8_e4m3fn], weight: [float8_e4m3fn], x_scale: [float32], w_scale: [float32], group: 128}

Every other key is an input: a list of dtypes, or `any` where a column of the table is compared instead.  An input that
a line does not name was not there when its rows were measured.  `group` is how many values of K share a scale, and
`named: true` marks a reading that the operands alone do not tell: it is meant only where `quant` asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.signatures import signature
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.columns.facts.facts import missing, refuse
from tensor_cast.performance_model.profiling_database.data_source import MissReason

__all__ = ["Extents", "Reading", "read_operands", "settle_operands"]

# scale -> (rows, K) of the operand it belongs to
Extents = Mapping[str, tuple[int, int]]
_ABSENT: Final = "absent"
_ANY: Final = "any"


@dataclass(frozen=True, slots=True)
class Reading:
    """One line of `operands`; None in `dtypes` is `any`."""

    quant: str | None
    dtypes: Mapping[str, tuple[str, ...] | None]
    group: int | None = None
    named: bool = False


def read_operands(value: object) -> tuple[Reading, ...]:
    """The lines of an entry's `operands`.  Raises InvalidValueError that names the line for a wrong type."""
    if not isinstance(value, list) or not value:
        raise InvalidValueError(f"facts.operands: expected a list of readings, got {value!r}")
    return tuple(_reading(i, line) for i, line in enumerate(value))


def _reading(number: int, line: object) -> Reading:
    where = f"facts.operands[{number}]"
    if not isinstance(line, dict):
        raise InvalidValueError(f"{where}: expected a mapping of inputs to dtypes, got {line!r}")
    group = line.get("group")
    if group is not None and (type(group) is not int or group < 1):
        raise InvalidValueError(f"{where}.group: expected a whole number above 0, got {group!r}")
    roles = {str(role): value for role, value in line.items() if role not in ("quant", "group", "named")}
    for role, dtypes in roles.items():
        if dtypes != _ANY and not (isinstance(dtypes, list) and all(isinstance(name, str) for name in dtypes)):
            raise InvalidValueError(f"{where}.{role}: expected a list of dtypes or any, got {dtypes!r}")
    named = {role: None if value == _ANY else tuple(value) for role, value in roles.items()}
    quant = line.get("quant")
    return Reading(None if quant is None else str(quant), named, group, bool(line.get("named", False)))


def settle_operands(leaf: LeafOp, constants: Mapping[str, object], extents: Extents | None = None) -> str | None:
    """The quantisation subtype that the operands of `leaf` stand for; None where the entry lists none.

    Refuses operands that no reading lists, and operands that fit several subtypes of which none is asked for.
    """
    _no_surplus(leaf)
    if "operands" not in constants:
        return None
    readings = read_operands(constants["operands"])
    asked = leaf.attributes.get("quant") or constants.get("quant")
    known = tuple(dict.fromkeys(reading.quant for reading in readings if reading.quant is not None))
    if asked is not None and known and asked not in known:
        hint = f"{leaf.name} may stand for {', '.join(known)}; got quant {asked!r}"
        raise refuse(MissReason.TARGET_UNAVAILABLE, "quant", hint)
    wanted = [reading for reading in readings if asked is None or reading.quant in (None, asked)]
    apart = [dict(_differences(leaf, reading, extents or {})) for reading in wanted]
    fitting = [reading for reading, differs in zip(wanted, apart, strict=True) if not differs]
    meant = next((reading for reading in fitting if asked is not None or not reading.named), None)
    if meant is not None:
        return meant.quant
    if fitting:
        names = ", ".join(str(reading.quant) for reading in fitting)
        raise missing("quant", f"these operands do not tell the subtype: give attrs.quant, one of {names}")
    closest = min(apart, key=len)
    hint = "nothing is borrowed from rows of other operands"
    raise refuse(MissReason.REGIME_KEY_UNMATCHED, "", hint, regime_differs_in=closest)


def _no_surplus(leaf: LeafOp) -> None:
    """Refuses an input beyond the operator's arguments: no table can have been measured with it."""
    arguments = signature(leaf.name)
    if arguments is None:
        return
    names = {argument.name for argument in arguments}
    for i, spec in enumerate(leaf.inputs):
        if spec.role not in names:
            hint = f"{leaf.name} takes {', '.join(sorted(names))}; input {i} is {spec.role or 'one too many'}"
            raise refuse(MissReason.TARGET_UNAVAILABLE, f"inputs[{i}]", hint)


def _differences(leaf: LeafOp, reading: Reading, extents: Extents) -> Iterator[tuple[str, Mapping[str, object]]]:
    for spec in leaf.inputs:
        if spec.role not in reading.dtypes:
            yield spec.role, {"asked": spec.dtype, "measured": _ABSENT}
            continue
        listed = reading.dtypes[spec.role]
        if listed is not None and spec.dtype not in (("float32", *listed) if spec.rank == 0 else listed):
            yield f"{spec.role}_dtype", {"asked": spec.dtype, "measured": " or ".join(listed)}
        elif spec.role in extents and not _shares(spec, *extents[spec.role], reading.group):
            shared = "one per row or tensor" if reading.group is None else f"one per {reading.group} values"
            yield f"{spec.role}_shape", {"asked": spec.shape, "measured": shared}


def _shares(scale: TensorSpec, rows: int, reduced: int, group: int | None) -> bool:
    """Whether a scale is shared as the rows say.  A 0-d scale is one factor and says nothing of groups."""
    if scale.rank == 0:
        return True
    if group is None or reduced <= group:
        return scale.numel == 1 or (scale.numel == rows and (scale.rank == 1 or 1 in scale.shape))
    groups = math.ceil(reduced / group)
    blocks = (rows, math.ceil(rows / group))
    return scale.rank == 2 and any(scale.shape in ((count, groups), (groups, count)) for count in blocks)
