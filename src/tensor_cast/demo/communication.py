"""Collectives: latency by message bytes, devices and topology tier."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["COLUMNS", "FORMULA", "Collective", "CollectiveRow", "collectives"]

COLUMNS: Final = ("message_bytes", "num_devices", "dtype", "topology_tier", "Duration(us)", "bandwidth_gbps")
FORMULA: Final = (
    "latency_us = 6 + 1.5*log2(devices) + (10 on tier 0) + 1e6 * factor * bytes / (link bandwidth); "
    "factor = 2*(n-1)/n for all-reduce, (n-1) per contributed byte for all-gather and reduce-scatter, (n-1)/n for "
    "all-to-all; link bandwidth 25, 150, 200 GB/s on tiers 0 (between servers), 1 (in a server), 2 (in a card)"
)
_BANDWIDTH: Final[Mapping[int, float]] = {0: 25e9, 1: 150e9, 2: 200e9}
_GROUPS: Final = ((2, 2), (2, 1), (8, 1), (16, 1), (16, 0))
_SIZES: Final = tuple(2**power for power in range(7, 30))


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One message size on one group of devices."""

    message_bytes: int
    devices: int
    tier: int
    latency_us: float


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective's table."""

    kernel: str
    rows: tuple[CollectiveRow, ...]


def collectives() -> Iterator[Collective]:
    """The four collectives."""
    factors: dict[str, Callable[[int], float]] = {
        "hcom_allReduce_": lambda n: 2 * (n - 1) / n,
        "hcom_allGather_": lambda n: n - 1,
        "hcom_reduceScatter_": lambda n: n - 1,
        "hcom_alltoallv_": lambda n: (n - 1) / n,
    }
    for kernel, factor in factors.items():
        rows = (
            CollectiveRow(size, devices, tier, _latency_us(size, devices, tier, factor(devices)))
            for devices, tier in _GROUPS
            for size in _SIZES
        )
        yield Collective(kernel, tuple(rows))


def _latency_us(size: int, devices: int, tier: int, factor: float) -> float:
    start = 6.0 + 1.5 * math.log2(devices) + (10.0 if tier == 0 else 0.0)
    return start + 1e6 * factor * size / _BANDWIDTH[tier]
