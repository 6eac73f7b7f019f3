"""What every answer of an attention kernel says of its question: the axes, the place on them, the regime.

Source: RFC 6.1; docs/facts/interpolation.md, "Dense attention".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tensor_cast.performance_model.profiling_database.evidence import RegimeKey

__all__ = [
    "BATCH_AXIS_ABSENT",
    "BATCH_AXIS_CONSTANT",
    "BATCH_AXIS_CONSTRAINED",
    "BATCH_AXIS_FILTERED",
    "attention_details",
]

# Where the batch of an answer is from: the rows know none; all rows have this one; the question; rows without one only.
BATCH_AXIS_ABSENT: Final = "batch_axis_absent"
BATCH_AXIS_CONSTANT: Final = "batch_axis_constant"
BATCH_AXIS_CONSTRAINED: Final = "batch_axis_constrained"
BATCH_AXIS_FILTERED: Final = "batch_axis_filtered"


def attention_details(axes: Mapping[str, float], regime: RegimeKey, roots: Collection[str] = ()) -> dict[str, object]:
    """The question's axes, its place as it was asked (`roots` hold square roots), and its regime."""
    return {
        "attention_axes": list(axes),
        "axes_pre_transform": {axis: round(value**2 if axis in roots else value) for axis, value in axes.items()},
        "target_regime_key": dict(regime),
    }
