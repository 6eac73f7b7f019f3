"""The page that says where the demo's numbers come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tensor_cast.demo.communication import FORMULA
from tensor_cast.demo.csv_text import PROFILED_FACTOR
from tensor_cast.demo.rows import BANDWIDTH, PEAK_FLOPS, DemoTable

__all__ = ["TITLE", "provenance_text"]

TITLE: Final = "# Synthetic profiling database"

_TEXT: Final = """{title}

No number here was measured. Every latency is a formula times seeded noise: good for trying the tool, useless for
judging a device.

- Written by `castq db demo`, seed {seed}, noise {noise:g}.
- `latency_us = launch_us + max(flops / peak, bytes / bandwidth)`, with a peak of {fp16:g} TFLOPS (16 bit) or
  {int8:g} TOPS (INT8) and a bandwidth of {bandwidth:.3g} bytes per second (1.6 TiB/s).
- Noise: the latency is multiplied by `exp({noise:g} * z)`, `z` a standard normal draw clipped to 3 in absolute
  value, from a generator seeded with (seed, CRC-32 of the kernel's name), two draws a row.
- `Average Duration(us)` is that value. `Profiling ...` columns are {profiled:g} times the formula with the second draw:
  the median is 0.995 and the standard deviation 0.03 of their average.
- Some rows fill one of the two columns, some both, some neither, as in a collected database.
- Hardware counters are left out: there is no hardware behind these rows.

| Kernel | launch_us | Work |
|---|---|---|
{tables}

Collectives: {collectives}.
"""


def provenance_text(tables: Iterable[DemoTable], seed: int, noise: float) -> str:
    """The page as Markdown."""
    lines = [f"| {table.kernel} | {table.launch_us:g} | {table.work} |" for table in sorted(tables, key=_name)]
    return _TEXT.format(
        title=TITLE,
        seed=seed,
        noise=noise,
        fp16=PEAK_FLOPS["fp16"] / 1e12,
        int8=PEAK_FLOPS["int8"] / 1e12,
        bandwidth=BANDWIDTH,
        profiled=PROFILED_FACTOR,
        tables="\n".join(lines),
        collectives=FORMULA,
    )


def _name(table: DemoTable) -> str:
    return table.kernel
