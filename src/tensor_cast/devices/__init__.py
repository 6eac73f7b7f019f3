"""What the tool knows about a device: one YAML file each, in this folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from tensor_cast.errors import DataFileError, UnknownNameError, nearest

__all__ = ["DeviceProfile", "device_names", "device_profile"]


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One accelerator: its name, the grid that numbers the ranks (outermost level first) and its topology tiers.

    `comm_grid` of 48 x 8 x 2 reads: 48 servers, 8 cards a server, 2 dies a card; `tiers` are the interconnect levels
    for which communication was measured (0 = between servers, 1 = inside a server, 2 = inside a card).
    """

    name: str
    comm_grid: tuple[int, ...] = ()
    tiers: tuple[int, ...] = ()
    source: str = ""

    def topology_tier(self, ranks: tuple[int, ...]) -> int | None:
        """The tier of the outermost grid level in which the ranks differ; None without a grid."""
        if not self.comm_grid or not self.tiers:
            return None
        coordinates = [self._coordinate(rank) for rank in ranks]
        for level in range(len(self.comm_grid)):
            if len({coordinate[level] for coordinate in coordinates}) > 1:
                return max((tier for tier in self.tiers if tier <= level), default=None)
        return max(self.tiers)

    def _coordinate(self, rank: int) -> tuple[int, ...]:
        digits = []
        for size in reversed(self.comm_grid[1:]):
            rank, digit = divmod(rank, size)
            digits.append(digit)
        return (rank, *reversed(digits))  # a rank beyond the grid lies in a further server, never in the first again


def device_names() -> tuple[str, ...]:
    """Devices with a profile."""
    folder = resources.files("tensor_cast.devices")
    return tuple(sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".yaml")))


@cache
def device_profile(name: str) -> DeviceProfile:
    """The profile called `name`.  Raises UnknownNameError listing the known ones."""
    from tensor_cast.files.located_yaml import load_yaml

    if name not in device_names():
        known = device_names()
        raise UnknownNameError(f"unknown device {name!r}{nearest(name, known)}; known: {', '.join(known)}")
    with resources.as_file(resources.files("tensor_cast.devices") / f"{name}.yaml") as path:
        data = load_yaml(Path(path)).value
    if not isinstance(data, dict):
        raise DataFileError(path, "expected a mapping")
    return DeviceProfile(
        name,
        tuple(int(size) for size in data.get("comm_grid", ())),
        tuple(int(tier) for tier in data.get("tiers", ())),
        str(data.get("source", "")),
    )
