"""The tables of rbln."""

from __future__ import annotations

from collections.abc import Mapping

from shape_cases import Engine

__all__ = ["ENGINES"]

ENGINES: Mapping[str, Engine] = {}
