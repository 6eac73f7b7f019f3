"""From a case of an oracle table of input shapes to the call that answers it, one module for each vendor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Case", "Engine"]

Case = Mapping[str, Any]
"""The `in` of one case, as JSON says it."""

Engine = Callable[[str, Case], object]
"""Answers a case of a group with the JSON value of its `out`, or raises `castq.shapes.refusals.ShapeError`."""
