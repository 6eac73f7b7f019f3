"""`castq ops` and `castq axes`: what a database can be asked, and where it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from castq.commands.lookup import Database, MappingFile, NoCache

if TYPE_CHECKING:
    from castq.catalogue import KernelAxes

__all__ = ["AXES_EXAMPLE", "OPS_EXAMPLE", "axes", "ops"]

OPS_EXAMPLE: Final = "Example: castq ops -d h200_sxm/vllm/0.24.0"
AXES_EXAMPLE: Final = "Example: castq axes -d h200_sxm/vllm/0.24.0 --op aten.mm.default"
_MANY: Final = 12

AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def ops(
    database: Database,
    all_: Annotated[bool, typer.Option("--all", help="Also operators without a usable table.")] = False,
    mapping: MappingFile = None,
    no_cache: NoCache = False,
    as_json: AsJson = False,
) -> None:
    """List the operators of a database: how each is looked up, its attributes, and its kernels.

    Exit code 0; 2 for a wrong call or an unusable database.
    """
    from castq.ask import opened
    from castq.catalogue import list_operators
    from castq.commands import show

    found = list_operators(opened(database, mapping, not no_cache))
    if as_json:
        show.print_json([line.to_json() for line in found])
        return
    shown = [line for line in found if all_ or line.measured]
    rows = [(line.name, line.path, ", ".join(line.measured) or "-", ", ".join(line.attributes)) for line in shown]
    show.print_table(("operator", "path", "measured kernels", "attributes"), rows)
    if len(shown) < len(found):
        show.say(f"{len(found) - len(shown)} more operators have no table of their own; --all lists them")


def axes(
    database: Database,
    op: Annotated[str, typer.Option("--op", metavar="NAME", help="Operator, such as aten.mm.default.")],
    mapping: MappingFile = None,
    no_cache: NoCache = False,
    as_json: AsJson = False,
) -> None:
    """Show where an operator was measured: the range of each axis, dtypes and other regime facts, kernels.

    A question must agree with the facts of some regime and lie within the ranges of its axes; --json lists every
    regime with its own.  Exit code 0; 2 for a wrong call, an unusable database or an unknown operator.
    """
    from castq.ask import opened
    from castq.catalogue import measured_axes
    from castq.commands import show

    found = measured_axes(opened(database, mapping, not no_cache), op)
    if as_json:
        show.print_json([kernel.to_json() for kernel in found])
        return
    if not found:
        show.say(f"{op} runs no kernel in this database")
    for kernel in found:
        show.print_tree(_title(kernel), _told(kernel))


def _title(kernel: KernelAxes) -> str:
    if kernel.problem:
        return f"{kernel.kernel}: no rows; {kernel.problem}"
    return f"{kernel.kernel}: {kernel.points} points in {len(kernel.regimes)} regimes"


def _told(kernel: KernelAxes) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if kernel.axes:
        shown["axes"] = {axis: _span(values) for axis, values in kernel.axes.items() if values}
    if kernel.facts:
        shown["regime"] = {name: _listed(values) for name, values in kernel.facts.items()}
    if kernel.variants:
        shown["kernel_source"] = _listed(kernel.variants)
    return shown


def _span(values: Sequence[float]) -> str:
    listed = f": {_listed(values)}" if 2 < len(values) <= _MANY else f", {len(values)} values"
    return f"{_text(values[0])}..{_text(values[-1])}{listed}" if len(values) > 1 else _text(values[0])


def _listed(values: Sequence[Any]) -> str:
    more = f" and {len(values) - _MANY} more" if len(values) > _MANY else ""
    return ", ".join(map(_text, values[:_MANY])) + more


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
