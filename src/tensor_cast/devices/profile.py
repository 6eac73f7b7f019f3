"""A device profile: figures with their sources, what is empty and why, and the grid that numbers the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tensor_cast.devices.vocabulary import FIGURES, PEAKS, TIERS, in_base_unit, peak_name
from tensor_cast.errors import InvalidValueError, MissingFigureError, UnknownNameError, nearest

__all__ = ["Absence", "Confidence", "DeviceProfile", "Entry", "Figure", "Gap", "Label"]


class Confidence(StrEnum):
    """How a value was found.

    Primary: read in a vendor's document or repository, or in the file of the tool that is named.  Secondary: a page of
    somebody else, or somebody else's measurement.  Own estimate: own arithmetic, or own analysis of a measured table.
    """

    PRIMARY = "primary"
    SECONDARY = "secondary"
    OWN_ESTIMATE = "own-estimate"


class Absence(StrEnum):
    """Why a figure is empty: known from memory only, found in no source, or no such thing in any source."""

    UNVERIFIED = "unverified"
    NOT_PUBLISHED = "not-published"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as its sources state it, in `unit`; `low` and `high` differ where a range is stated.

    `alternatives` are what other sources say instead, none of them used; `why` says why not.
    """

    name: str
    low: float
    high: float
    unit: str
    sources: tuple[str, ...]
    confidence: Confidence
    note: str = ""
    alternatives: tuple[Figure | Label | Gap, ...] = ()
    why: str = ""

    @property
    def value(self) -> float:
        """The number, in `unit`.  Raises InvalidValueError for a range."""
        if self.low != self.high:
            raise InvalidValueError(f"{self.name} is a range, {self.shown}: take its low or its high")
        return self.low

    @property
    def in_base_unit(self) -> float:
        """The number in bytes, bytes/s, FLOP/s, OP/s, us, Hz, W, a count or a fraction.  Raises as `value` does."""
        return in_base_unit(self.value, self.unit)

    @property
    def shown(self) -> str:
        """The number or range with its unit, such as `141 GB`."""
        ends = [f"{end:.10g}" for end in dict.fromkeys((self.low, self.high))]
        return " to ".join(ends) + ("" if self.unit in ("count", "fraction") else f" {self.unit}")


@dataclass(frozen=True, slots=True)
class Label:
    """A statement in words: the name of a product or a link, or a bound that is no number."""

    name: str
    text: str
    sources: tuple[str, ...]
    confidence: Confidence
    note: str = ""

    @property
    def shown(self) -> str:
        """The text."""
        return self.text


@dataclass(frozen=True, slots=True)
class Gap:
    """A figure that stays empty; `reason` says what is known about it."""

    name: str
    absence: Absence
    reason: str
    alternatives: tuple[Figure | Label | Gap, ...] = ()

    @property
    def shown(self) -> str:
        """Why it is empty, in a word or two."""
        return f"empty: {self.absence.value}"


Entry: TypeAlias = Figure | Label | Gap


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One accelerator: its name, the grid that numbers the ranks (outermost level first), its tiers, its figures.

    `comm_grid` of 48 x 8 x 2 reads: 48 servers, 8 cards a server, 2 dies a card; `tiers` are the interconnect levels
    for which communication was measured (0 = between servers, 1 = inside a server, 2 = inside a card), `grid_links` the
    link that joins each level.  `entries` holds figures, words and gaps under names such as `memory.capacity`.
    """

    name: str
    comm_grid: tuple[int, ...] = ()
    tiers: tuple[int, ...] = ()
    grid_links: tuple[str, ...] = ()
    title: str = ""
    vendor: str = ""
    aliases: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()

    @property
    def memory_bytes(self) -> int:
        """Capacity of the device's memory.  Raises MissingFigureError where it is empty."""
        return round(self.figure("memory.capacity").in_base_unit)

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Peak bandwidth of the device's memory.  Raises MissingFigureError where it is empty."""
        return self.figure("memory.bandwidth").in_base_unit

    def peak(self, dtype: str) -> Figure:
        """The dense peak of multiplication in `dtype` (also `tf32`, `hf32`), with its source.

        Raises MissingFigureError where it is empty, UnknownNameError for a word that is no dtype.
        """
        return self._of_dtype("peaks", dtype)

    def peak_flops(self, dtype: str) -> float:
        """As `peak`: operations per second, a multiplication with its addition counted as two."""
        return self.peak(dtype).in_base_unit

    def vector_flops(self, dtype: str) -> float:
        """Peak of the vector units in `dtype`, in operations per second.  Raises as `peak` does."""
        return self._of_dtype("vector", dtype).in_base_unit

    def link_bandwidth_bytes_per_s(self, tier: str | int) -> float:
        """Bandwidth per device and direction of a link, by its name or its topology tier.  Raises as `figure` does."""
        return self.figure(f"links.{self._link(tier)}.bandwidth").in_base_unit

    def link_latency_us(self, tier: str | int) -> float:
        """Latency of a link, by its name or its topology tier.  Raises as `figure` does."""
        return self.figure(f"links.{self._link(tier)}.latency").in_base_unit

    @property
    def links(self) -> tuple[str, ...]:
        """The tiers with any entry, nearest first."""
        found = {entry.name.split(".")[1] for entry in self.entries if entry.name.startswith("links.")}
        return tuple(tier for tier in TIERS if tier in found)

    def figure(self, name: str) -> Figure:
        """The figure called `name`, such as `links.node.bandwidth`.

        Raises MissingFigureError, naming the device, the figure, why it is empty and what is known; UnknownNameError
        for a name that no profile uses.
        """
        entry = self.entry(name)
        if isinstance(entry, Figure):
            return entry
        raise MissingFigureError(f"{self.name} has no {name}: {_why_missing(entry)}{self._known_beside(name)}")

    def entry(self, name: str) -> Entry | None:
        """What the profile says under `name`, or None.  Raises UnknownNameError for a name that no profile uses."""
        if name not in FIGURES:
            raise UnknownNameError(f"no figure is called {name!r}{nearest(name, FIGURES)}")
        return next((entry for entry in self.entries if entry.name == name), None)

    def section(self, name: str) -> tuple[Entry, ...]:
        """The entries whose names start with `name` and a dot."""
        return tuple(entry for entry in self.entries if entry.name.startswith(f"{name}."))

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

    def _of_dtype(self, section: str, dtype: str) -> Figure:
        peak = peak_name(dtype)
        name = f"{section}.{peak}"
        if peak is None or name not in FIGURES:
            kept = ", ".join(word for word in PEAKS if f"{section}.{word}" in FIGURES)
            raise MissingFigureError(f"{self.name} has no {section} figure for {dtype}: profiles keep {kept}")
        return self.figure(name)

    def _link(self, tier: str | int) -> str:
        if isinstance(tier, str):
            if tier not in TIERS:
                raise UnknownNameError(f"no tier of links is called {tier!r}{nearest(tier, TIERS)}: {', '.join(TIERS)}")
            return tier
        if tier not in range(len(self.grid_links)):
            levels = f"0 to {len(self.grid_links) - 1}" if self.grid_links else "no grid"
            raise UnknownNameError(f"{self.name} has no topology tier {tier}: {levels}")
        return self.grid_links[tier]

    def _known_beside(self, name: str) -> str:
        """The figures of the same section, so that a caller sees what could be asked instead."""
        section = name.rpartition(".")[0]
        known = [
            f"{entry.name} {entry.shown}"
            for entry in self.section(section)
            if isinstance(entry, Figure) and entry.name.rpartition(".")[0] == section
        ]
        return f"; known: {', '.join(known)}" if known else f"; nothing else is known under {section}"


def _why_missing(entry: Entry | None) -> str:
    if entry is None:
        return "not stated by any source of the profile"
    if isinstance(entry, Label):
        return f"it is a word, not a number: {entry.text}"
    if isinstance(entry, Figure):
        return ""
    quoted = [other.shown for other in entry.alternatives if not isinstance(other, Gap)]
    return f"{entry.absence.value}; {entry.reason}" + (f"; quoted, not used: {', '.join(quoted)}" if quoted else "")
