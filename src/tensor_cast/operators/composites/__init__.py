"""Composite operators as what runs on the device: children as leaf operators of their own, for whoever sums."""

from __future__ import annotations

from tensor_cast.operators.composites.canonical import NotDecomposable, canonical_leaves
from tensor_cast.operators.composites.descriptor import canonical_leaf

__all__ = ["NotDecomposable", "canonical_leaf", "canonical_leaves"]
