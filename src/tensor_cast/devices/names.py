"""Which devices have a profile, and which spelling means which."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.errors import UnknownNameError, nearest

__all__ = ["device_names", "device_profile"]


@cache
def device_names() -> tuple[str, ...]:
    """Devices with a profile."""
    folder = resources.files("tensor_cast.devices")
    return tuple(sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".yaml")))


def device_profile(name: str) -> DeviceProfile:
    """The profile called `name`, by its own name or an alias; case and `-` or `_` do not matter.

    Raises UnknownNameError with the nearest spelling and the known names.
    """
    bare = _plain(name)
    own = {_plain(known): known for known in device_names()}
    found = own.get(bare) or _aliases().get(bare)
    if found is not None:
        return _profile(found)
    hint = nearest(name, device_names()) or nearest(bare, (*own, *_aliases()))
    raise UnknownNameError(f"unknown device {name!r}{hint}; known: {', '.join(device_names())}")


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


@cache
def _profile(name: str) -> DeviceProfile:
    from tensor_cast.devices.reading import read_profile

    with resources.as_file(resources.files("tensor_cast.devices") / f"{name}.yaml") as path:
        return read_profile(Path(path))


@cache
def _aliases() -> Mapping[str, str]:
    """Further spellings; reading them means reading every profile, so own names are tried first."""
    return {_plain(alias): name for name in device_names() for alias in _profile(name).aliases}
