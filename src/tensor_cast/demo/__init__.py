"""A synthetic database in the Ascend layout, from stated formulas: for trying the tool without measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensor_cast.demo.writer import DemoReport, write_demo_database

__all__ = ["DemoReport", "write_demo_database"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tensor_cast.demo import writer

    return getattr(writer, name)
