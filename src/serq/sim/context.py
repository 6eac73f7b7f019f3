"""What an expression can read at the moment it is evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serq.sim.chains import Chain
    from serq.sim.rng import Rng

__all__ = ["Context"]


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
