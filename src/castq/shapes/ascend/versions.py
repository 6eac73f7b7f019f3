"""What releases of vllm-ascend differ in, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from castq.shapes.refusals import ShapeError

__all__ = ["CURRENT", "VERSIONS", "AscendRules", "rules_of"]


@dataclass(frozen=True, slots=True)
class AscendRules:
    """`sp_by_switch`: sequence parallelism is on by the FlashComm switch, whatever the backend; `sp_by_property`: it is
    on by itself where the layout allows it, which `sp_needs_dp` narrows to several data-parallel ranks.

    `new_requests_are_decodes`: without speculation a request without computed tokens may be part of a uniform batch.
    """

    sp_by_switch: bool = False
    sp_by_property: bool = False
    sp_needs_dp: bool = False
    new_requests_are_decodes: bool = False


CURRENT: Final = "0.27.1rc1"
VERSIONS: Final = {
    "0.23.0": AscendRules(sp_by_switch=True, new_requests_are_decodes=True),
    "0.25.1rc1": AscendRules(sp_by_switch=True, new_requests_are_decodes=True),
    "182b75ea": AscendRules(sp_by_property=True, sp_needs_dp=True, new_requests_are_decodes=True),
    CURRENT: AscendRules(),
}


def rules_of(version: str) -> AscendRules:
    """The rules of a release.  Raises ShapeError for one that nobody described."""
    if version not in VERSIONS:
        raise ShapeError("unknown_version", f"vllm-ascend {version!r}: described are {', '.join(VERSIONS)}")
    return VERSIONS[version]
