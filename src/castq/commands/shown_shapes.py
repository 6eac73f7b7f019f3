"""Plans of shapes as people and programs read them: tables, the map of waste, JSON."""

from __future__ import annotations

from typing import Any, Final

from castq.commands import show
from castq.shapes.heat import Cell, heat_lines
from castq.shapes.planned import GraphCount, Warned
from castq.shapes.plans import BatchPlan, StepsPlan
from castq.shapes.settings_file import Engine

__all__ = ["cells", "listed", "memory", "per_graph", "plan_json", "show_plan"]

_RANGE: Final = ("batch", "mode", "tokens", "waste", "why")


def cells(plans: tuple[BatchPlan, ...]) -> list[Cell]:
    """The squares of the map."""
    return [Cell(one.batch, one.mode, one.waste) for one in plans]


def show_plan(
    engine: Engine, plans: tuple[BatchPlan, ...], steps: StepsPlan | None, warned: tuple[Warned, ...]
) -> None:
    """What runs as what, the map, the steps in sum, and what to mend."""
    planner = engine.planner
    graphs = planner.graphs()
    show.say(f"{engine.vendor}: sizes {listed(planner.sizes) or 'none'}; {graphs.count} graphs, memory {_of(graphs)}")
    show.print_table(_RANGE, [_range(row) for row in _ranges(plans)])
    show.say_lines("\n".join(heat_lines(cells(plans))))
    if steps is not None:
        modes = ", ".join(f"{mode} {count}" for mode, count in steps.modes.most_common())
        show.say(
            f"{steps.steps} steps: {modes}; {steps.tokens} real tokens, {steps.physical} computed, "
            f"{steps.share_wasted:.1%} padding; {steps.rows - steps.requests} dummy rows"
        )
        for why, count in steps.reasons.most_common(5):
            show.say(f"eager in {count} steps: {why}")
    for one in warned:
        show.say(f"warning: {one.text}; {one.setting}")


def _ranges(plans: tuple[BatchPlan, ...]) -> list[list[BatchPlan]]:
    """Neighbouring batches that run alike, together."""
    rows: list[list[BatchPlan]] = []
    for one in plans:
        last = rows[-1][-1] if rows else None
        if last is not None and one.batch == last.batch + 1 and _kind(one) == _kind(last):
            rows[-1].append(one)
        else:
            rows.append([one])
    return rows


def _kind(one: BatchPlan) -> tuple[object, ...]:
    if one.step is None:
        return ("REFUSED",)
    return one.mode, None if one.mode == "EAGER" else one.step.physical


def _range(row: list[BatchPlan]) -> tuple[str, ...]:
    first, last = row[0], row[-1]
    batch = _span(str(first.batch), str(last.batch))
    if first.step is None or last.step is None:
        return batch, first.mode, "-", "-", last.refused
    tokens = _span(str(first.step.physical), str(last.step.physical))
    return batch, first.mode, tokens, _span(f"{first.waste:.0%}", f"{last.waste:.0%}"), last.step.why


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low}..{high}"


def listed(sizes: tuple[int, ...]) -> str:
    """Sizes, parted by commas."""
    return ", ".join(map(str, sizes))


def _of(graphs: GraphCount) -> str:
    if graphs.least_bytes is None or graphs.most_bytes is None:
        return "not known"
    low, high = graphs.least_bytes / 2**30, graphs.most_bytes / 2**30
    return f"{high:.2f} GiB" if low == high else f"{low:.1f} to {high:.1f} GiB"


def per_graph(graphs: GraphCount) -> int | None:
    """Bytes of one graph, where the figure is exact."""
    if graphs.least_bytes is None or graphs.least_bytes != graphs.most_bytes or not graphs.count:
        return None
    return graphs.least_bytes // graphs.count


def memory(each: int | None, sizes: int) -> str:
    """Memory of so many graphs in words."""
    return "not known" if each is None else f"{each * sizes / 2**30:.2f} GiB"


def plan_json(
    engine: Engine, plans: tuple[BatchPlan, ...], steps: StepsPlan | None, warned: tuple[Warned, ...]
) -> dict[str, Any]:
    """The same data as the tables."""
    graphs = engine.planner.graphs()
    document: dict[str, Any] = {
        "vendor": engine.vendor,
        "sizes": list(engine.planner.sizes),
        "graphs": {
            "count": graphs.count,
            "bytes": None if graphs.least_bytes is None else [graphs.least_bytes, graphs.most_bytes],
            "source": graphs.source or "not known",
        },
        "batches": [_batch_json(one) for one in plans],
        "warnings": [{"text": one.text, "setting": one.setting} for one in warned],
    }
    if steps is not None:
        document["steps"] = {
            "count": steps.steps,
            "modes": dict(steps.modes),
            "eager": dict(steps.reasons),
            "tokens": steps.tokens,
            "physical_tokens": steps.physical,
            "waste": steps.share_wasted,
            "dummy_rows": steps.rows - steps.requests,
            "waste_by_batch": {
                str(batch): padding / max(physical, 1) for batch, (padding, physical) in sorted(steps.waste.items())
            },
        }
    return document


def _batch_json(one: BatchPlan) -> dict[str, Any]:
    if one.step is None:
        return {"batch": one.batch, "mode": "REFUSED", "why": one.refused}
    step = one.step
    shape = {"tokens": step.tokens, "physical_tokens": step.physical, "rows": step.rows, "dummy_rows": step.dummy_rows}
    return {"batch": one.batch, "mode": step.mode, **shape, "waste": one.waste, "why": step.why}
