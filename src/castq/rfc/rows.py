"""The rows of RFC tables 3.4.1 and 3.4.2 as data: what each states per version, and the questions that test it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tensor_cast.errors import DataFileError
from tensor_cast.files.located_yaml import load_yaml

if TYPE_CHECKING:
    from tensor_cast.operators.leaf import LeafOp

__all__ = ["ACCOUNTED", "Claim", "OwnRows", "Probe", "RfcRow", "RfcRows", "grouped", "load_rows"]

ROWS_FILE: Final = Path(__file__).with_name("rows.yaml")
ACCOUNTED: Final = ("zero-cost", "accepted-miss", "base")
AxisGroup = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """One question, and the parallel sizes it is asked under."""

    leaf: LeafOp
    ep_size: int | None = None
    tp_size: int = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """What a row states for one version.

    `path` is an interpolation path's name or one of `ACCOUNTED`; `axes` are the groups in the order they are tried;
    `expect` holds one outcome per probe.
    """

    path: str
    selector: Mapping[str, Any]
    axes: tuple[AxisGroup, ...]
    ceiling: str
    expect: tuple[str, ...]

    @property
    def axes_text(self) -> str:
        return "; ".join(" + ".join(group) for group in self.axes) or "-"


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Rows of a kernel that no shipped or synthetic table holds, and what questions on them come to.

    Each row is a column name to cell mapping; `expect` holds one outcome per probe, the same in every version.
    """

    kernel: str
    rows: tuple[Mapping[str, str], ...]
    probes: tuple[Probe, ...]
    expect: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RfcRow:
    """One operator entry of a table; `claims` by version, `real_expect` by GPU database, `own` where rows lack."""

    operator: str
    table: str
    category: str
    subcategory: str
    claims: Mapping[str, Claim]
    probes: tuple[Probe, ...]
    real: Probe | None
    real_expect: Mapping[str, str]
    own: OwnRows | None = None

    def text(self, show: Callable[[Claim], str]) -> str:
        """A fact of the claims in one line, named by version where versions differ."""
        return grouped({version: show(claim) for version, claim in self.claims.items()})


@dataclass(frozen=True, slots=True)
class RfcRows:
    """Every row, and the GPU databases asked unless others are named."""

    rows: tuple[RfcRow, ...]
    gpu: tuple[str, ...]


def grouped(texts: Mapping[str, str]) -> str:
    """One text where all versions agree, else `v0.13: a; v0.15, v0.18: b`."""
    by_text: dict[str, list[str]] = {}
    for version, text in texts.items():
        by_text.setdefault(text, []).append(version)
    if len(by_text) == 1:
        return next(iter(by_text))
    return "; ".join(f"{', '.join(versions)}: {text}" for text, versions in by_text.items())


def load_rows(path: Path = ROWS_FILE) -> RfcRows:
    """The rows of the shipped file.  Raises DataFileError where a field is missing or lists do not fit together."""
    document = load_yaml(path).value
    try:
        rows = tuple(
            _row({**family["common"], **fields}) for family in document["families"] for fields in family["operators"]
        )
        return RfcRows(rows, tuple(document["gpu"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DataFileError(path, f"not a file of RFC rows: {error!r}") from None


def _row(fields: Mapping[str, Any]) -> RfcRow:
    operator = str(fields["operator"])
    probes = tuple(_probe(operator, probe) for probe in fields["probes"])
    variants = fields.get("variants", {})
    if not set(variants) <= set(fields["versions"]):
        raise ValueError(f"{operator}: variants of versions the row does not list")
    claims = {
        version: _claim({**fields, **variants.get(version, {})}, operator, len(probes))
        for version in fields["versions"]
    }
    real = _probe(operator, fields["real"]) if "real" in fields else None
    return RfcRow(
        operator,
        str(fields["table"]),
        fields["category"],
        fields.get("subcategory", ""),
        claims,
        probes,
        real,
        dict(fields.get("real_expect", {})),
        _own(operator, fields["own"]) if "own" in fields else None,
    )


def _own(operator: str, fields: Mapping[str, Any]) -> OwnRows:
    shared = fields.get("columns", {})
    rows = tuple({str(name): str(cell) for name, cell in {**shared, **row}.items()} for row in fields["rows"])
    probes = tuple(_probe(operator, probe) for probe in fields["probes"])
    expect = tuple(fields["expect"])
    if len(expect) != len(probes):
        raise ValueError(f"{operator}, own rows: {len(expect)} outcomes for {len(probes)} probes")
    return OwnRows(str(fields["kernel"]), rows, probes, expect)


def _claim(fields: Mapping[str, Any], operator: str, probes: int) -> Claim:
    expect = fields["expect"]
    outcomes = (expect,) * probes if isinstance(expect, str) else tuple(expect)
    if len(outcomes) != probes:
        raise ValueError(f"{operator}: {len(outcomes)} outcomes for {probes} probes")
    axes = tuple(tuple(group.split(" + ")) for group in fields.get("axes", ()))
    return Claim(fields["path"], dict(fields.get("selector", {})), axes, fields["ceiling"], outcomes)


def _probe(operator: str, fields: Mapping[str, Any]) -> Probe:
    from castq.operator_text import build_operator

    requests = {name: fields.get(name) for name in ("query_lens", "kv_lens", "phase", "block_table")}
    outputs, attrs = fields.get("outputs", ()), fields.get("attrs", ())
    leaf = build_operator(operator, fields["inputs"], outputs, attrs, **requests)
    return Probe(leaf, fields.get("ep_size"), fields.get("tp_size", 1))
