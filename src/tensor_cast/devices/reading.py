"""One device YAML, read strictly: every value has a unit, a source and a confidence, and no word is unknown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from tensor_cast.devices.profile import Absence, Confidence, DeviceProfile, Entry, Figure, Gap, Label
from tensor_cast.devices.vocabulary import SECTIONS, TIERS, Dimension, units_of
from tensor_cast.errors import DataFileError, nearest
from tensor_cast.files.located_yaml import LocatedYaml, load_yaml

__all__ = ["read_profile"]

Keys = tuple[object, ...]
Node = Mapping[object, object]
Word = TypeVar("Word", bound=StrEnum)

_HEAD: Final = ("title", "vendor", "aliases", "sources", "grid")
_STATED: Final = ("source", "confidence", "note")
_DISPUTED: Final = ("alternatives", "why")


def read_profile(path: Path) -> DeviceProfile:
    """The profile in a file named after its device.

    Raises DataFileError with file, line and field for anything else: an unknown or doubled key, a unit of another
    dimension, a number that is not finite and positive, a value without source or confidence, alternatives without the
    reason why they are not used, a source that nothing rests on.
    """
    return _Reader(load_yaml(path)).profile(path.stem)


class _Reader:
    """Walks one document; `keys` lead to the place that an error names."""

    def __init__(self, document: LocatedYaml) -> None:
        self._document = document
        self._cited: set[str] = set()
        self._sources: dict[str, str] = {}

    def profile(self, name: str) -> DeviceProfile:
        top = self._mapping((), self._document.value)
        self._known((), top, (*_HEAD, *SECTIONS))
        self._sources = {
            str(key): self._text(("sources", key), text)
            for key, text in self._mapping(("sources",), top.get("sources")).items()
        }
        sizes, tiers, links = self._grid(top["grid"]) if "grid" in top else ((), (), ())
        entries = tuple(
            entry for section in SECTIONS if section in top for entry in self._section(section, top[section])
        )
        self._uncited()
        return DeviceProfile(
            name,
            sizes,
            tiers,
            links,
            title=self._text(("title",), top.get("title")),
            vendor=self._text(("vendor",), top.get("vendor")),
            aliases=tuple(self._texts(("aliases",), top.get("aliases", []))),
            entries=entries,
        )

    def _uncited(self) -> None:
        for key in self._sources:
            if key not in self._cited:
                raise self._error(("sources", key), "no value rests on it")

    def _grid(self, node: object) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
        keys = ("grid",)
        grid = self._mapping(keys, node)
        self._known(keys, grid, ("sizes", "tiers", "links", *_STATED))
        self._stated(keys, grid)
        sizes = self._wholes((*keys, "sizes"), grid.get("sizes"), 1)
        tiers = self._wholes((*keys, "tiers"), grid.get("tiers"), 0)
        links = tuple(self._texts((*keys, "links"), grid.get("links")))
        for link in links:
            self._one_of((*keys, "links"), link, TIERS)
        if len(links) != len(sizes):
            raise self._error((*keys, "links"), f"got {len(links)} links, allowed: one for each of {len(sizes)} sizes")
        return sizes, tiers, links

    def _section(self, section: str, node: object) -> Iterator[Entry]:
        figures = self._mapping((section,), node)
        if section == "links":
            self._known((section,), figures, TIERS)
            for tier in figures:
                link = self._mapping((section, tier), figures[tier])
                names = [name.partition(".")[2] for name in SECTIONS[section] if name.startswith(f"{tier}.")]
                self._known((section, tier), link, names)
                for name in link:
                    yield self._entry((section, tier, name), link[name], SECTIONS[section][f"{tier}.{name}"])
            return
        self._known((section,), figures, SECTIONS[section])
        for name in figures:
            yield self._entry((section, name), figures[name], SECTIONS[section][str(name)])

    def _entry(self, keys: Keys, node: object, dimension: Dimension) -> Entry:
        entry = self._mapping(keys, node)
        name = ".".join(str(key) for key in keys)
        if "text" in entry and dimension is Dimension.TEXT:
            return self._label(keys, entry, name)
        if "empty" in entry:
            return self._gap(keys, entry, name, dimension)
        if dimension is Dimension.TEXT:
            raise self._error(keys, "expected text or empty")
        return self._figure(keys, entry, name, dimension, disputable=True)

    def _figure(self, keys: Keys, entry: Node, name: str, dimension: Dimension, disputable: bool) -> Figure:
        self._known(keys, entry, ("value", "unit", *_STATED, *(_DISPUTED if disputable else ())))
        unit = self._one_of((*keys, "unit"), entry.get("unit"), units_of(dimension))
        low, high = self._range((*keys, "value"), entry.get("value"), dimension)
        sources, confidence, note = self._stated(keys, entry)
        others = self._alternatives(keys, entry, name, dimension)
        if bool(others) != ("why" in entry):
            raise self._error((*keys, "why"), "alternatives need the reason why they are not used, and only they do")
        why = self._text((*keys, "why"), entry["why"]) if others else ""
        return Figure(name, low, high, unit, sources, confidence, note, others, why)

    def _label(self, keys: Keys, entry: Node, name: str) -> Label:
        self._known(keys, entry, ("text", *_STATED))
        text = self._text((*keys, "text"), entry.get("text"))
        return Label(name, text, *self._stated(keys, entry))

    def _gap(self, keys: Keys, entry: Node, name: str, dimension: Dimension) -> Gap:
        self._known(keys, entry, ("empty", "reason", "alternatives"))
        absence = self._word((*keys, "empty"), entry.get("empty"), Absence)
        reason = self._text((*keys, "reason"), entry.get("reason"))
        return Gap(name, absence, reason, self._alternatives(keys, entry, name, dimension))

    def _alternatives(self, keys: Keys, entry: Node, name: str, dimension: Dimension) -> tuple[Entry, ...]:
        if "alternatives" not in entry:
            return ()
        keys = (*keys, "alternatives")
        found = entry["alternatives"]
        if not isinstance(found, list) or not found:
            raise self._error(keys, f"got {_shown(found)}, allowed: a list of at least one value")
        return tuple(self._alternative((*keys, at), node, name, dimension) for at, node in enumerate(found))

    def _alternative(self, keys: Keys, node: object, name: str, dimension: Dimension) -> Entry:
        entry = self._mapping(keys, node)
        if "text" in entry:
            return self._label(keys, entry, name)
        if "empty" in entry:
            self._known(keys, entry, ("empty", "reason"))
            return self._gap(keys, entry, name, dimension)
        return self._figure(keys, entry, name, dimension, disputable=False)

    def _stated(self, keys: Keys, entry: Node) -> tuple[tuple[str, ...], Confidence, str]:
        """Sources in full, confidence and note of one value."""
        if "source" not in entry:
            raise self._error((*keys, "source"), "missing: every value names its source")
        named = entry["source"]
        cited = [named] if isinstance(named, str) else self._texts((*keys, "source"), named)
        if not cited:
            raise self._error((*keys, "source"), "got [], allowed: at least one key of sources")
        for key in cited:
            self._one_of((*keys, "source"), key, self._sources)
        self._cited.update(cited)
        confidence = self._word((*keys, "confidence"), entry.get("confidence"), Confidence)
        note = self._text((*keys, "note"), entry["note"]) if "note" in entry else ""
        return tuple(self._sources[key] for key in cited), confidence, note

    def _range(self, keys: Keys, value: object, dimension: Dimension) -> tuple[float, float]:
        ends = [_positive(end) for end in (value if isinstance(value, list) else [value, value])]
        if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
            low, high = ends[0], ends[1]
            ordered = low < high or not isinstance(value, list)
            if ordered and (dimension is not Dimension.FRACTION or high <= 1):
                return low, high
        most = " of at most 1" if dimension is Dimension.FRACTION else ""
        raise self._error(keys, f"got {_shown(value)}, allowed: a positive number{most}, or [low, high] of two")

    def _wholes(self, keys: Keys, value: object, least: int) -> tuple[int, ...]:
        if isinstance(value, list) and value and all(type(item) is int and item >= least for item in value):
            return tuple(value)
        raise self._error(keys, f"got {_shown(value)}, allowed: a list of whole numbers >= {least}")

    def _mapping(self, keys: Keys, value: object) -> Node:
        if isinstance(value, dict) and value:
            return value
        raise self._error(keys, f"got {_shown(value)}, allowed: a mapping")

    def _text(self, keys: Keys, value: object) -> str:
        if isinstance(value, str) and value.strip():
            return value
        raise self._error(keys, f"got {_shown(value)}, allowed: a text")

    def _texts(self, keys: Keys, value: object) -> list[str]:
        if isinstance(value, list):
            return [self._text(keys, item) for item in value]
        raise self._error(keys, f"got {_shown(value)}, allowed: a list of texts")

    def _one_of(self, keys: Keys, value: object, allowed: Iterable[str]) -> str:
        known = tuple(allowed)
        if isinstance(value, str) and value in known:
            return value
        hint = nearest(value, known) if isinstance(value, str) else ""
        raise self._error(keys, f"got {_shown(value)}{hint}, allowed: {', '.join(known)}")

    def _word(self, keys: Keys, value: object, kind: type[Word]) -> Word:
        return kind(self._one_of(keys, value, [word.value for word in kind]))

    def _known(self, keys: Keys, node: Node, allowed: Iterable[str]) -> None:
        known = tuple(allowed)
        for key in node:
            if key not in known:
                raise self._error((*keys, key), f"unknown key{nearest(str(key), known)}, allowed: {', '.join(known)}")

    def _error(self, keys: Keys, problem: str) -> DataFileError:
        return self._document.error(keys, problem)


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)


def _positive(value: object) -> float | None:
    """A finite number above 0, or None."""
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    return number if 0 < number < math.inf else None
