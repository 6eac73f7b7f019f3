"""How commands print: valid JSON, tables and trees that never cut a value off, and nothing that steers a terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from castq.streams import printable, put

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.tree import Tree

__all__ = ["console", "print_json", "print_table", "print_tree", "progress", "say", "say_lines"]

_PIPED_WIDTH: Final = 10_000


@contextmanager
def progress(title: str) -> Iterator[Callable[[str, float, float], None] | None]:
    """A bar on standard error, told what is done, how far, and of how much; None where nobody looks."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=console(error=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda what, done, total: bar.update(
            task, description=escape(printable(what)), completed=done, total=total
        )


def say(text: str, *, error: bool = False) -> None:
    """One line; line ends and control characters in it are escaped."""
    put(printable(text) + "\n", error=error)


def say_lines(text: str, *, error: bool = False) -> None:
    """Several lines; control characters are escaped."""
    put("".join(printable(line) + "\n" for line in text.split("\n")), error=error)


def print_json(document: object) -> None:
    """One JSON document on standard output: numbers that JSON does not have are null, nothing steers a terminal."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    plain = not encoding.lower().replace("-", "").startswith("utf")
    text = json.dumps(_finite(document), indent=2, ensure_ascii=plain, allow_nan=False)
    put(_json_escaped(text) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json_escaped(text: str) -> str:
    """Characters that are no text (they can only stand inside JSON strings) as JSON escapes."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def console(error: bool = False) -> Console:
    """A console that wraps at a terminal's edge and not at all elsewhere."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=width is not None)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = (), fold: bool = True
) -> None:
    """A table: a line a row, its cells parted by tabs; on a terminal in columns, those in `right` aligned to the right.

    On a terminal the last column folds, unless `fold` is off; every other value stays in one piece, and none is cut.
    """
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        put("".join("\t".join(row) + "\n" for row in [columns, *cells]))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        last = fold and name == columns[-1]
        table.add_column(name, justify="right" if name in right else "left", overflow="fold", no_wrap=not last)
    for row in cells:
        table.add_row(*row)
    _print(table, None if fold else _PIPED_WIDTH)


def print_tree(title: str, values: Mapping[str, Any]) -> None:
    """A tree of plain JSON values: scalars and short lists on one line, everything else as branches."""
    from rich.tree import Tree

    tree = Tree(printable(title))
    _grow(tree, values, top=True)
    _print(tree)


def _print(renderable: RenderableType, width: int | None = None) -> None:
    terminal = console()
    terminal.width = width or terminal.width
    with terminal.capture() as captured:
        terminal.print(renderable)
    put("".join(line.rstrip() + "\n" for line in captured.get().split("\n")[:-1]))


def _grow(tree: Tree, values: Mapping[str, Any], top: bool = False) -> None:
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, Mapping) and value and (top or not _is_flat(value.values())):
            _grow(tree.add(printable(str(name))), value)
        elif isinstance(value, list) and not _is_flat(value):
            branch = tree.add(printable(str(name)))
            for item in value:
                _grow_item(branch, item)
        else:
            tree.add(printable(f"{name}: {_inline(value)}"))


def _grow_item(branch: Tree, item: Any) -> None:
    if isinstance(item, Mapping) and not _is_flat(item.values()):
        flat = {key: value for key, value in item.items() if _is_flat([value])}
        child = branch.add(printable(_inline(flat)) if flat else "-")
        _grow(child, {key: value for key, value in item.items() if key not in flat})
    else:
        branch.add(printable(_inline(item)))


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
