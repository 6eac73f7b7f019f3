"""The coordinates the demo covers: between neighbours lies interpolation, outside lies a miss."""

from __future__ import annotations

from typing import Final

__all__ = ["MATRIX_ROWS", "PROFILED_TOKENS", "TOKENS", "WIDTHS"]

MATRIX_ROWS: Final = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
TOKENS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
WIDTHS: Final = (1024, 2048, 4096, 5120, 7168)
# Token counts seen only in a serving profile: they lie between grid points and fill the profiler's column alone.
PROFILED_TOKENS: Final = (136, 700, 3000)
