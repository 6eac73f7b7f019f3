"""Where shapes waste, as a picture: a square for each batch size, darker with more padding, eager ones marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Cell", "heat_lines", "heat_svg"]

_ACROSS: Final = 16
_SHADES: Final = " .:-=+*#%@"
_SIZE: Final = 34
_EAGER: Final = ("EAGER", "REFUSED")


@dataclass(frozen=True, slots=True)
class Cell:
    """A batch size, how it runs, and the share of its physical tokens that is padding."""

    batch: int
    mode: str
    waste: float

    @property
    def letter(self) -> str:
        """One of ten shades for padding; `E` for eager, `X` for refused."""
        if self.mode in _EAGER:
            return "E" if self.mode == "EAGER" else "X"
        return _SHADES[min(int(self.waste * len(_SHADES)), len(_SHADES) - 1)]


def heat_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """The map as text, 16 batches a line, and what its letters mean."""
    for at in range(0, len(cells), _ACROSS):
        row = cells[at : at + _ACROSS]
        yield f"{row[0].batch:>6} |{''.join(cell.letter for cell in row)}|"
    yield f"padding from 0 % '{_SHADES[0]}' to 90 % and more '{_SHADES[-1]}'; E eager, X refused"


def heat_svg(title: str, cells: Sequence[Cell]) -> str:
    """The map as a drawing."""
    from xml.sax.saxutils import escape

    lines = -(-len(cells) // _ACROSS)
    width, height = _ACROSS * _SIZE + 20, lines * _SIZE + 60
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<style>text{font:11px sans-serif;text-anchor:middle;fill:#222}",
        ".title{font-size:14px;text-anchor:start}</style>",
        f'<text class="title" x="10" y="20">{escape(title)}</text>',
    ]
    for at, cell in enumerate(cells):
        x, y = 10 + at % _ACROSS * _SIZE, 30 + at // _ACROSS * _SIZE
        told = f"{cell.batch}: {cell.mode}, {cell.waste:.0%} padding"
        drawn.append(
            f'<g><title>{escape(told)}</title><rect x="{x}" y="{y}" width="{_SIZE - 2}" height="{_SIZE - 2}" '
            f'fill="{_colour(cell)}"/><text x="{x + _SIZE // 2 - 1}" y="{y + _SIZE // 2 + 3}">{cell.batch}</text></g>'
        )
    legend = "white: no padding; red: padding; grey: eager"
    drawn.append(f'<text class="title" x="10" y="{height - 8}">{legend}</text></svg>')
    return "\n".join(drawn) + "\n"


def _colour(cell: Cell) -> str:
    if cell.mode in _EAGER:
        return "#bbb"
    pale = round(255 * (1 - cell.waste))
    return f"rgb(255,{pale},{pale})"
