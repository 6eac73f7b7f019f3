"""A run looked at step by step: is each selection legal on the engine, and what does its padding cost?

The watch only reads; the run goes on the same with and without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from castq.shapes.planned import Planner, Work
from castq.shapes.plans import StepsPlan
from castq.shapes.refusals import ShapeError
from serq.sim.selection import SelectedRequest, Selection

__all__ = ["ANY", "ShapeWatch", "Violation", "work_of"]

ANY = ""
"""The name under which a planner stands for every engine that has none of its own."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The first step of an engine that breaks a rule."""

    engine: str
    step: int
    time: float
    rule: str
    text: str
    requests: tuple[int, ...]

    def __str__(self) -> str:
        who = ", ".join(map(str, self.requests[:8])) + (", ..." if len(self.requests) > 8 else "")
        return f"step {self.step} of {self.engine} at {self.time:g}, requests {who}: {self.rule}: {self.text}"


class ShapeWatch:
    """An observer of a run; afterwards `plans` sums up each engine and `violations` holds its first breach."""

    def __init__(self, planners: Mapping[str, Planner]) -> None:
        self._planners = planners
        self.plans: dict[str, StepsPlan] = {}
        self.violations: dict[str, Violation] = {}
        self.broken: dict[str, int] = {}

    def __call__(self, selection: Selection) -> None:
        planner = self._planners.get(selection.engine) or self._planners.get(ANY)
        if planner is None or not selection.requests:
            return
        work = tuple(work_of(one) for one in selection.requests)
        try:
            planned = planner.plan(work)
        except ShapeError as error:
            self._breach(selection, error)
            return
        self.plans.setdefault(selection.engine, StepsPlan()).add(planned, work)

    def _breach(self, selection: Selection, error: ShapeError) -> None:
        self.broken[selection.engine] = self.broken.get(selection.engine, 0) + 1
        if selection.engine not in self.violations:
            requests = tuple(one.request for one in selection.requests)
            self.violations[selection.engine] = Violation(
                selection.engine, selection.step, selection.time, error.reason, str(error), requests
            )


def work_of(one: SelectedRequest) -> Work:
    """A selected request as a planner sees it; where its context is not known a decode has one token before it."""
    tokens = round(one.tokens)
    prefill = one.phase == "prefill" and tokens > 1
    computed = round(one.context) if one.context is not None else int(not prefill)
    return Work(computed, tokens, computed + tokens + prefill)
