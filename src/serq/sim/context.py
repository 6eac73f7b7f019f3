"""What an expression can read at the moment it is evaluated, and the error a run can end with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serq.errors import Place, fail

if TYPE_CHECKING:
    from serq.sim.chains import Chain
    from serq.sim.rng import Rng

__all__ = ["Context", "RunError"]


class RunError(ValueError):
    """A run that cannot go on.

    `kind` is one of `run-guard run-cost run-progress run-amount run-index run-drain run-cycle`.  `file` and `line` tell
    where in the text, `session` who (its serial) and `time` when in the run; None where that is not known, as the lines
    of a program that was read from its interchange form.
    """

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        self.place: Place | None = None
        self.session: int | None = None
        self.time: float | None = None
        super().__init__(kind, message)

    @property
    def file(self) -> str | None:
        return None if self.place is None else self.place.source.name

    @property
    def line(self) -> int | None:
        return None if self.place is None else self.place.line

    def located(self, place: Place | None = None, session: int | None = None, time: float | None = None) -> RunError:
        """The error with what it does not know yet of where, who and when."""
        self.place = place if self.place is None else self.place
        self.session = session if self.session is None else self.session
        self.time = time if self.time is None else self.time
        return self

    def __str__(self) -> str:
        """`FILE:LINE:COLUMN: error: message (session S, at time T)`, with the line of the text."""
        known = [] if self.session is None else [f"session {self.session}"]
        known += [] if self.time is None else [f"at time {self.time:g}"]
        message = f"{self.message} ({', '.join(known)})" if known else self.message
        return message if self.place is None else str(fail(self.kind, message, self.place))


class Context:
    """The clock, the stream that draws, and the context words of the moment.

    One object per run: whoever evaluates an expression sets what its moment defines.
    """

    __slots__ = (
        "admission",
        "age",
        "arrived",
        "attention",
        "batch_prefilled",
        "batch_tokens",
        "chain",
        "decoders",
        "decoding",
        "demand",
        "kv_decode",
        "kv_prefill",
        "last",
        "now",
        "position",
        "prefilled",
        "present",
        "remaining",
        "residents",
        "rng",
        "running_count",
        "running_decoding",
        "running_kv_decode",
        "running_kv_prefill",
        "running_preempted",
        "served",
        "size",
        "tokens",
        "waited",
        "waiting",
        "waiting_admitted",
        "waiting_count",
    )

    admission: float
    age: float
    arrived: float
    attention: float
    batch_prefilled: float
    batch_tokens: float
    chain: Chain | None
    decoders: float
    decoding: float
    demand: float
    kv_decode: float
    kv_prefill: float
    last: float
    now: float
    position: float
    prefilled: float
    present: float
    remaining: float
    residents: float
    running_count: float
    running_decoding: float
    running_kv_decode: float
    running_kv_prefill: float
    running_preempted: float
    served: float
    size: float
    tokens: float
    waited: float
    waiting: float
    waiting_admitted: float
    waiting_count: float
    rng: Rng

    def __init__(self, rng: Rng) -> None:
        for name in self.__slots__:
            setattr(self, name, 0.0)
        self.rng = rng
        self.chain = None
