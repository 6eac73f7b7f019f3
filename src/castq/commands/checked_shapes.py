"""`castq run --check-shapes`: the contract of a vendor's engine, looked at in every step of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from castq.commands import show
from castq.shapes.settings_file import read_engine
from castq.shapes.watch import ANY, ShapeWatch
from tensor_cast.errors import InvalidValueError, nearest

if TYPE_CHECKING:
    from serq import ir as ir_nodes

__all__ = ["show_watch", "watch_json", "watch_of"]


def watch_of(given: Sequence[str] | None, program: ir_nodes.Program) -> ShapeWatch | None:
    """The watch that `SETTINGS.yaml`, or `ENGINE=SETTINGS.yaml` once for each engine, asks for; None without any."""
    if not given:
        return None
    engines = [stage.name for stage in program.stages if stage.step is not None]
    if not engines:
        raise InvalidValueError("--check-shapes: the program has no step engine")
    planners = {}
    for text in given:
        name, named, path = text.partition("=")
        if named and name not in engines:
            raise InvalidValueError(
                f"--check-shapes {text}: no engine {name!r}; it has {', '.join(engines)}{nearest(name, engines)}"
            )
        planners[name if named else ANY] = read_engine(Path(path if named else text)).planner
    return ShapeWatch(planners)


def show_watch(watch: ShapeWatch) -> None:
    """A line for each engine, and its first breach."""
    for engine, found in watch.plans.items():
        modes = ", ".join(f"{mode} {count}" for mode, count in found.modes.most_common())
        eager = found.modes.get("EAGER", 0)
        falls = f", {eager} fall to eager" if eager else ""
        show.say(
            f"shapes of {engine}: {found.steps} steps, {modes}; {found.tokens} real tokens, {found.physical} computed, "
            f"{found.share_wasted:.1%} padding{falls}"
        )
    for engine, breach in watch.violations.items():
        more = watch.broken[engine] - 1
        show.say(f"shapes: {breach}" + (f"; {more} more steps break a rule" if more else ""))
    if not watch.violations:
        show.say("shapes: no violation")


def watch_json(watch: ShapeWatch) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "engines": {
            engine: {
                "steps": found.steps,
                "modes": dict(found.modes),
                "eager": dict(found.reasons),
                "tokens": found.tokens,
                "physical_tokens": found.physical,
                "waste": found.share_wasted,
            }
            for engine, found in watch.plans.items()
        },
        "violations": [
            {**asdict(breach), "broken_steps": watch.broken[engine]} for engine, breach in watch.violations.items()
        ],
    }
