"""Garbage collection held off while many rows are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_at_rest"]


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """No garbage collection meanwhile: walking millions of new rows again and again costs more than making them.

    Nothing is lost by it: what is made here is kept, and holds no circles.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
