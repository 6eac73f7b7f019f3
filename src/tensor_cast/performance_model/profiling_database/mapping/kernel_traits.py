"""How a kernel records its inputs, read from `kernels.yaml`; a kernel that the file does not name has no trait."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from tensor_cast.files.located_yaml import LocatedYaml, load_yaml

__all__ = ["RECORDED_AS", "KernelTraits", "kernel_traits", "read_kernel_traits"]

RECORDED_AS: Final = ("rope", "halves_joined", "cache_halves")


@dataclass(frozen=True, slots=True)
class KernelTraits:
    """The traits of one kernel, as `kernels.yaml` explains them."""

    product: bool = False
    path_product: bool = False
    batched: bool = False
    flattened: bool = False
    merged: bool = False
    relaxed: bool = False
    scale_blocks: bool = False
    recorded_as: str = ""

    @property
    def regrouped(self) -> bool:
        """Whether rows may hold three dimensions as two."""
        return self.flattened or self.merged


_NONE: Final = KernelTraits()


@cache
def kernel_traits(kernel: str) -> KernelTraits:
    """The traits of a kernel by its name in the tables."""
    return _shipped().get(kernel, _NONE)


@cache
def _shipped() -> dict[str, KernelTraits]:
    with resources.as_file(resources.files(__package__) / "kernels.yaml") as path:
        return read_kernel_traits(path)


def read_kernel_traits(path: Path) -> dict[str, KernelTraits]:
    """Kernels by name.  Raises DataFileError with line and key for anything that is no trait."""
    located = load_yaml(path)
    document = located.value if isinstance(located.value, dict) else {}
    kernels = document.get("kernels")
    if not isinstance(kernels, dict) or len(document) != 1:
        raise located.error((), "expected one key, kernels, with the traits of each kernel")
    return {str(name): _traits(located, str(name), given) for name, given in kernels.items()}


def _traits(located: LocatedYaml, kernel: str, given: object) -> KernelTraits:
    allowed = [one.name for one in fields(KernelTraits)]
    if not isinstance(given, dict):
        raise located.error(("kernels", kernel), f"expected traits, got {given!r}")
    for name, value in given.items():
        fits = value in RECORDED_AS if name == "recorded_as" else isinstance(value, bool)
        if name not in allowed or not fits:
            traits = ", ".join(allowed)
            raise located.error(("kernels", kernel, name), f"{value!r} is no trait of {traits}")
    return KernelTraits(**given)
