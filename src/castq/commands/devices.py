"""`castq devices`: what is known about accelerators, each figure with its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from tensor_cast.devices import DeviceProfile, Entry

__all__ = ["EXAMPLE", "devices"]

EXAMPLE: Final = "Example: castq devices h200_sxm"
_HEAD: Final = ("device", "title", "memory", "bandwidth", "bf16", "fp8", "int8", "link")
_FIGURES: Final = ("memory.capacity", "memory.bandwidth", "peaks.bf16", "peaks.fp8", "peaks.int8")
_COLUMNS: Final = ("figure", "value", "confidence", "source", "beside it")

Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Device, by its name or an alias.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def devices(name: Name = None, as_json: AsJson = False) -> None:
    """List the devices with a profile, or print every figure of one with its unit, confidence and sources.

    A figure that no source confirms is empty, and says why; where sources differ, the one that is used stands first.
    Exit code 0; 2 for a device without a profile.
    """
    from castq.commands import show
    from tensor_cast.devices import device_names, device_profile

    found = [device_profile(one) for one in (device_names() if name is None else (name,))]
    if as_json:
        show.print_json([_to_json(one) for one in found] if name is None else _to_json(found[0]))
    elif name is None:
        show.print_table(_HEAD, [_summary(one) for one in found], fold=False)
    else:
        _show(found[0])


def _summary(device: DeviceProfile) -> tuple[str, ...]:
    shown = [entry.shown if (entry := device.entry(figure)) is not None else "-" for figure in _FIGURES]
    nearest = f"links.{device.links[0]}.bandwidth" if device.links else ""
    link = device.entry(nearest) if nearest else None
    return device.name, device.title, *shown, f"{device.links[0]} {link.shown}" if link is not None else "-"


def _show(device: DeviceProfile) -> None:
    from castq.commands import show

    also = f", also called {', '.join(device.aliases)}" if device.aliases else ""
    show.say(f"{device.name}: {device.title} ({device.vendor}){also}")
    if device.comm_grid:
        show.say(f"grid of ranks: {' x '.join(map(str, device.comm_grid))}")
    show.print_table(_COLUMNS, [_row(entry) for entry in device.entries])


def _row(entry: Entry) -> tuple[str, ...]:
    told = _told(entry)
    beside = "; ".join(part for part in (told.get("note", ""), *_others(entry), told.get("why", "")) if part)
    sources = "; ".join(told.get("sources", ()))
    return entry.name, entry.shown, told.get("confidence", "-"), sources or told.get("reason", "-"), beside


def _others(entry: Entry) -> list[str]:
    return [f"not used: {other.shown}" for other in getattr(entry, "alternatives", ())]


def _to_json(device: DeviceProfile) -> dict[str, Any]:
    return {
        "name": device.name,
        "title": device.title,
        "vendor": device.vendor,
        "aliases": list(device.aliases),
        "comm_grid": list(device.comm_grid),
        "tiers": list(device.tiers),
        "figures": {entry.name: _told(entry) for entry in device.entries},
    }


def _told(entry: Entry) -> dict[str, Any]:
    """Everything a profile says under one name, empty words left out."""
    told: dict[str, Any] = {"shown": entry.shown}
    for field in ("low", "high", "unit", "text", "confidence", "absence", "reason", "note", "why"):
        value = getattr(entry, field, "")
        if value != "":
            told[field] = value
    told["sources"] = list(getattr(entry, "sources", ()))
    told["alternatives"] = [_told(other) for other in getattr(entry, "alternatives", ())]
    return told
