"""Many steps planned: what runs as what, what is wasted, and where steps fall off the graphs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from castq.shapes.planned import PlannedStep, Planner, Warned, Work
from castq.shapes.refusals import ShapeError
from castq.shapes.settings_file import UNLIMITED_BLOCKS, Engine
from castq.shapes.traffic import decode_batch

__all__ = ["BatchPlan", "StepsPlan", "block_warnings", "plan_batches", "plan_steps"]


_GRAPHS = ("FULL", "PIECEWISE")  # modes whose sizes steps with prefills share with decodes
_REASONS = 64  # different ones that are counted; the rest is "other"


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A decode batch: its plan, or why the vendor refuses it."""

    batch: int
    step: PlannedStep | None
    refused: str = ""

    @property
    def mode(self) -> str:
        return "REFUSED" if self.step is None else self.step.mode

    @property
    def waste(self) -> float:
        """The share of the physical tokens that is padding."""
        return 0.0 if self.step is None else self.step.padding / max(self.step.physical, 1)


@dataclass(slots=True)
class StepsPlan:
    """Steps in sum."""

    steps: int = 0
    tokens: int = 0
    physical: int = 0
    rows: int = 0
    requests: int = 0
    modes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    decodes: Counter[int] = field(default_factory=Counter)
    mixed: Counter[int] = field(default_factory=Counter)  # tokens of steps with prefills that a captured graph runs
    waste: dict[int, list[int]] = field(default_factory=dict)
    context: int = 0
    most_dummies: int = 0

    def add(self, planned: PlannedStep, work: Sequence[Work], times: int = 1) -> None:
        """Count a step, or several alike."""
        self.steps += times
        self.tokens += times * planned.tokens
        self.physical += times * planned.physical
        self.rows += times * planned.rows
        self.requests += times * planned.requests
        self.modes[planned.mode] += times
        if planned.why:
            known = planned.why in self.reasons or len(self.reasons) < _REASONS
            self.reasons[planned.why if known else "other"] += times
        if not any(one.prefill for one in work):
            self.decodes[planned.requests] += times
            self.context += times * sum(one.computed for one in work)
        elif planned.mode in _GRAPHS:
            self.mixed[planned.tokens] += times
        self.most_dummies = max(self.most_dummies, planned.dummy_rows)
        padding = self.waste.setdefault(planned.requests, [0, 0])
        padding[0] += times * planned.padding
        padding[1] += times * planned.physical

    @property
    def share_wasted(self) -> float:
        return (self.physical - self.tokens) / max(self.physical, 1)

    def common_batch(self) -> int | None:
        """The decode batch that occurs most."""
        return max(self.decodes, key=lambda batch: (self.decodes[batch], batch)) if self.decodes else None

    @property
    def mean_context(self) -> float:
        """Tokens before a decode, on average."""
        return self.context / max(sum(batch * times for batch, times in self.decodes.items()), 1)

    def warnings(self, planner: Planner) -> tuple[Warned, ...]:
        """What this traffic makes of the sizes."""
        common = self.common_batch()
        if common is None or not planner.sizes or common * planner.query_len in planner.sizes:
            return ()
        share = self.decodes[common] / self.decodes.total()
        text = f"the list has no size for {common} decodes, the commonest batch ({share:.0%} of the decode steps)"
        names = {"rbln": "decode_batch_bucket_manual"}
        setting = names.get(planner.vendor, "cudagraph_capture_sizes")
        return (Warned(text, f"{setting}: add {common * planner.query_len}"),)


def plan_batches(planner: Planner, batches: Iterable[int]) -> tuple[BatchPlan, ...]:
    """Each decode batch; one that the vendor refuses says so."""
    found = []
    for batch in batches:
        try:
            found.append(BatchPlan(batch, planner.plan(decode_batch(batch, planner.query_len))))
        except ShapeError as error:
            found.append(BatchPlan(batch, None, str(error)))
    return tuple(found)


def plan_steps(planner: Planner, steps: Iterable[Sequence[Work]]) -> StepsPlan:
    """All steps; raises ShapeError at the first that the vendor refuses.  O(requests of all steps)."""
    found = StepsPlan()
    for number, work in enumerate(steps):
        try:
            planned = planner.plan(work)
        except ShapeError as error:
            raise ShapeError(error.reason, f"step {number}: {error} ({error.reason})", raised=error.raised) from None
        found.add(planned, work)
    return found


def block_warnings(engine: Engine, steps: StepsPlan | None) -> tuple[Warned, ...]:
    """Slots that the blocks do not fill, for requests of the length that the decodes had on average."""
    given = engine.selection
    if given.num_blocks == UNLIMITED_BLOCKS:
        return ()
    each = 1 if steps is None else max(math.ceil(steps.mean_context / given.block_size), 1)
    allowed = (given.num_blocks - 1) // each
    if allowed >= given.max_num_seqs:
        return ()
    text = f"{given.num_blocks - 1} blocks hold {allowed} requests of {each} blocks"
    return (Warned(text, f"max_num_seqs: {given.max_num_seqs} is above that"),)
