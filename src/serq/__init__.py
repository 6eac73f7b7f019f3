"""Serving programs: a language in which a deployment is a program that is checked and simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serq.compiler import compile
    from serq.errors import RunError, SerqError
    from serq.report.report import Report
    from serq.runner import run
    from serq.sim.selection import SelectedRequest, Selection

__all__ = ["Report", "RunError", "SelectedRequest", "Selection", "SerqError", "__version__", "compile", "run"]

__version__ = "0.1.0"

_HOME = {
    "compile": "serq.compiler",
    "Report": "serq.report.report",
    "run": "serq.runner",
    "RunError": "serq.errors",
    "SelectedRequest": "serq.sim.selection",
    "Selection": "serq.sim.selection",
    "SerqError": "serq.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'serq' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
