"""A deployment as a picture: the stages in the order a session meets them, above the pools it holds meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from serq import ir
from serq.report.paths import paths

__all__ = ["draw_svg"]

_WIDTH, _HEIGHT, _GAP, _MARGIN, _TOP = 150, 58, 46, 24, 36
_KINDS = {"fifo": "queue", "ps": "processor sharing", "delay": "delay", "step": "engine"}


@dataclass(frozen=True, slots=True)
class _Box:
    """A stage or pool; a family is one box."""

    title: str
    note: str
    left: int
    top: int
    style: str

    def svg(self) -> str:
        x, y = self.left + _WIDTH / 2, self.top
        return (
            f'<rect class="{self.style}" x="{self.left}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
            f'<text x="{x}" y="{y + 25}" class="name">{_text(self.title)}</text>'
            f'<text x="{x}" y="{y + 43}" class="note">{_text(self.note)}</text>'
        )


def _text(text: str) -> str:
    """Text as SVG can hold it: XML has no control characters, so they are shown as escapes."""
    return escape("".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text))


def draw_svg(program: ir.Program) -> str:
    """The picture as SVG text: arrows along the ways of a session, dashed lines from a pool to what runs inside it.

    An arrow that is not always taken says when.  The layout is one row of stages over one row of pools; a family is
    drawn once, with its size.
    """
    found = paths(program)
    visits = found.visits
    stages = _boxes(_order(program.stages, [at for visit in visits for at in visit.stages]), program, 0)
    pools = _boxes(_order(program.pools, [at for visit in visits for at in visit.pools]), program, 1)
    lines: list[str] = []
    for (one, two), conditions in found.steps.items():
        if one in stages and two in stages and one != two:
            lines.append(_arrow(stages[one], stages[two], _label(conditions)))
    held = {(pool, stage) for visit in visits for pool in visit.pools for stage in visit.stages}
    lines += [_dashed(pools[pool], stages[stage]) for pool, stage in sorted(held) if pool in pools and stage in stages]
    boxes = [box.svg() for box in (*stages.values(), *pools.values())]
    columns = max(len(stages), len(pools), 1)
    width = 2 * _MARGIN + columns * _WIDTH + (columns - 1) * _GAP
    height = _TOP + _MARGIN + _HEIGHT * (2 if pools else 1) + (2 * _GAP if pools else 0)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([opening, _STYLE, *lines, *boxes, "</svg>", ""])


_STYLE = (
    "<style>text{font:13px sans-serif;text-anchor:middle;fill:#222}.note,.when{font-size:11px;fill:#666}"
    "rect{stroke:#444;fill:#fff}.step{fill:#e3edf9}.pool{fill:#eef6e8}"
    "path{fill:none;stroke:#444}.held{stroke:#9a9;stroke-dasharray:4 4}</style>"
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" style="fill:#444"/></marker></defs>'
)


def _label(conditions: Sequence[str]) -> str:
    """What an arrow says: nothing where it is always taken."""
    return "" if "" in conditions else " or ".join(conditions)


def _order(declared: Sequence[ir.Stage | ir.Pool], met: list[int]) -> list[int]:
    """First members, those a session meets first, then the others in the order of declaration."""
    first = [i for i, item in enumerate(declared) if not item.index]
    return list(dict.fromkeys([at for at in met if at in first] + first))


def _boxes(order: list[int], program: ir.Program, row: int) -> dict[int, _Box]:
    found: dict[int, _Box] = {}
    for column, at in enumerate(order):
        item: ir.Stage | ir.Pool = program.pools[at] if row else program.stages[at]
        members: Sequence[ir.Stage | ir.Pool] = program.pools if row else program.stages
        size = sum(1 for other in members if other.name == item.name)
        title = item.name if item.index is None else f"{item.name}[{size}]"
        left, top = _MARGIN + column * (_WIDTH + _GAP), _TOP + row * (_HEIGHT + 2 * _GAP)
        if isinstance(item, ir.Pool):
            found[at] = _Box(title, f"{item.cap:g} units", left, top, "pool")
        else:
            found[at] = _Box(title, _KINDS[item.kind], left, top, item.kind)
    return found


def _arrow(one: _Box, two: _Box, label: str) -> str:
    """Straight to the next box on the right, in an arc over the boxes between, and below the straight one back.

    The label stands at the middle: above a straight arrow and an arc, below the way back.
    """
    middle = (one.left + two.left + _WIDTH) / 2
    if two.left > one.left and two.left - one.left <= _WIDTH + _GAP:
        y = one.top + _HEIGHT / 2 - 8
        return f'<path d="M{one.left + _WIDTH} {y}L{two.left} {y}" marker-end="url(#tip)"/>' + _said(
            label, middle, one.top - 6
        )
    if one.left > two.left and one.left - two.left <= _WIDTH + _GAP:
        y = one.top + _HEIGHT / 2 + 8
        return f'<path d="M{one.left} {y}L{two.left + _WIDTH} {y}" marker-end="url(#tip)"/>' + _said(
            label, middle, one.top + _HEIGHT + 14
        )
    start, end, y = one.left + _WIDTH / 2, two.left + _WIDTH / 2, one.top
    arc = f'<path d="M{start} {y}Q{middle} {y - 56} {end} {y}" marker-end="url(#tip)"/>'
    return arc + _said(label, middle, y - 32)


def _said(label: str, x: float, y: float) -> str:
    return f'<text x="{x}" y="{y}" class="when">{_text(label)}</text>' if label else ""


def _dashed(pool: _Box, stage: _Box) -> str:
    x1, x2 = pool.left + _WIDTH / 2, stage.left + _WIDTH / 2
    return f'<path class="held" d="M{x1} {pool.top}L{x2} {stage.top + _HEIGHT}"/>'
