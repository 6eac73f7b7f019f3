"""A request on its way through a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

__all__ = ["Arrival", "Request", "RequestState"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as it comes: `prompt` tokens, `output` tokens to generate, and when.

    `step` counts the scheduling steps that end before it can be seen.  `shared_tokens` are the first tokens of its
    prompt that every request of `shared_group` has.  The lowest priority is served first.
    """

    id: str
    prompt: int
    output: int
    step: int = 0
    priority: int = 0
    shared_group: Hashable = None
    shared_tokens: int = 0


RequestState = str


@dataclass(slots=True, eq=False)
class Request:
    """`known` tokens are prompt and generated ones, `computed` those whose keys and values exist."""

    arrival: Arrival
    order: int
    known: int = field(init=False)
    computed: int = 0
    generated: int = 0
    preempted: int = 0
    blocks: list[int] = field(default_factory=list)
    cached: int = 0

    def __post_init__(self) -> None:
        self.known = self.arrival.prompt

    @property
    def id(self) -> str:
        return self.arrival.id

    @property
    def is_prefill(self) -> bool:
        """More than the last known token is to be computed."""
        return self.computed < self.known - 1

    @property
    def rank(self) -> tuple[int, int]:
        """By priority, then by arrival; the largest is preempted first."""
        return self.arrival.priority, self.order

    def content(self, block: int, block_size: int) -> Hashable:
        """What tells the tokens up to the end of a block from those of other requests."""
        if (block + 1) * block_size <= self.arrival.shared_tokens:
            return self.arrival.shared_group, block
        return self.id, block


Order = Callable[[Request], object]
