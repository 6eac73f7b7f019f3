"""What a planner says of one step, whoever the vendor is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from castq.shapes.refusals import ShapeError

__all__ = ["Ceilings", "GraphCount", "PlannedStep", "Planner", "Warned", "Work", "check_batch"]


@dataclass(frozen=True, slots=True)
class Work:
    """A selected request: tokens computed before, tokens scheduled, and tokens known (prompt and generated)."""

    computed: int
    tokens: int
    known: int
    drafts: int = 0

    @property
    def prefill(self) -> bool:
        """More than the last known token is to be computed."""
        return self.computed < self.known - 1


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step as it runs: its mode, and the shape beside the real work.

    `rows` are the requests that metadata describes, dummies included, `physical` the tokens that the device computes;
    `token_dimension` is the one that experts exchange, where that is another.  `why` says why a step runs eager.
    Padding adds nothing to `tokens`, which alone are progress.
    """

    mode: str
    requests: int
    tokens: int
    rows: int
    physical: int
    why: str = ""
    token_dimension: int | None = None

    @property
    def padding(self) -> int:
        """Tokens computed for nobody."""
        return self.physical - self.tokens

    @property
    def dummy_rows(self) -> int:
        return max(self.rows - self.requests, 0)


@dataclass(frozen=True, slots=True)
class GraphCount:
    """Graphs that are captured: how many, and their bytes where a figure exists, as a range."""

    count: int
    least_bytes: int | None = None
    most_bytes: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Warned:
    """Something a user would want to know, and the setting that mends it."""

    text: str
    setting: str


def check_batch(requests: int, tokens: int, settings: Ceilings) -> None:
    """A step holds at most the slots' requests and the budget's tokens.  Raises ShapeError."""
    if requests > settings.max_num_seqs:
        raise ShapeError("too_many_requests", f"{requests} requests, and max_num_seqs is {settings.max_num_seqs}")
    if tokens > settings.max_num_batched_tokens:
        budget = settings.max_num_batched_tokens
        raise ShapeError("token_budget", f"{tokens} tokens, and max_num_batched_tokens is {budget}")


class Ceilings(Protocol):
    """The settings that bound a step."""

    @property
    def max_num_seqs(self) -> int: ...

    @property
    def max_num_batched_tokens(self) -> int: ...


class Planner(Protocol):
    """One vendor's engine at its settings; derived sizes are worked out once."""

    @property
    def vendor(self) -> str: ...

    @property
    def slots(self) -> int:
        """Decodes that one step may hold."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Captured or compiled sizes, ascending."""

    @property
    def query_len(self) -> int:
        """Tokens of a decode: one, and its drafts."""

    def plan(self, work: Sequence[Work]) -> PlannedStep:
        """A step of these requests.  Raises ShapeError, its rule as the reason, for one that the vendor refuses."""

    def graphs(self) -> GraphCount: ...

    def warnings(self) -> tuple[Warned, ...]: ...
