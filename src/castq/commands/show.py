"""How commands print: JSON as it is, tables and trees that never cut a value off when piped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.tree import Tree

__all__ = ["console", "print_json", "print_table", "print_tree", "progress"]

_PIPED_WIDTH: Final = 10_000


@contextmanager
def progress(title: str) -> Iterator[Callable[[str, float, float], None] | None]:
    """A bar on standard error, told what is done, how far, and of how much; None where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress

    with Progress(console=console(error=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def print_json(document: object) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def console(error: bool = False) -> Console:
    """A console that wraps at a terminal's edge and not at all elsewhere."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=width is not None)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = (), fold: bool = True
) -> None:
    """A plain table; the columns named in `right` are aligned to the right.

    On a terminal the last column folds, unless `fold` is off; every other value stays in one piece, and none is cut.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        last = fold and name == columns[-1]
        table.add_column(name, justify="right" if name in right else "left", overflow="fold", no_wrap=not last)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    _print(table, None if fold else _PIPED_WIDTH)


def print_tree(title: str, facts: Mapping[str, Any]) -> None:
    """A tree of plain JSON facts: scalars and short lists on one line, everything else as branches."""
    from rich.tree import Tree

    tree = Tree(title)
    _grow(tree, facts, top=True)
    _print(tree)


def _print(renderable: RenderableType, width: int | None = None) -> None:
    terminal = console()
    terminal.width = width or terminal.width
    with terminal.capture() as captured:
        terminal.print(renderable)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def _grow(tree: Tree, facts: Mapping[str, Any], top: bool = False) -> None:
    for name, value in facts.items():
        if value is None:
            continue
        if isinstance(value, Mapping) and value and (top or not _is_flat(value.values())):
            _grow(tree.add(str(name)), value)
        elif isinstance(value, list) and not _is_flat(value):
            branch = tree.add(str(name))
            for item in value:
                _grow_item(branch, item)
        else:
            tree.add(f"{name}: {_inline(value)}")


def _grow_item(branch: Tree, item: Any) -> None:
    if isinstance(item, Mapping) and not _is_flat(item.values()):
        flat = {key: value for key, value in item.items() if _is_flat([value])}
        child = branch.add(_inline(flat) if flat else "-")
        _grow(child, {key: value for key, value in item.items() if key not in flat})
    else:
        branch.add(_inline(item))


def _is_flat(values: Iterable[Any]) -> bool:
    """Whether every value is a scalar or a list of scalars."""
    return all(_is_scalars(value) if isinstance(value, list) else not isinstance(value, Mapping) for value in values)


def _is_scalars(values: list[Any]) -> bool:
    return all(not isinstance(value, Mapping | list) for value in values)


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_inline(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
