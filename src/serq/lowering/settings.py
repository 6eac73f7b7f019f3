"""Horizon, warm-up, seed and arrivals: from the text, from the caller, and what they must satisfy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real

from serq import ir
from serq.errors import SerqError, fail
from serq.lowering.build import Build
from serq.lowering.expressions import constant
from serq.syntax import tree

__all__ = ["Settings", "finish", "given_settings", "written_settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the caller gave; None stands for 'not given'."""

    horizon: float | None = None
    warmup: float | None = None
    seed: int | None = None
    arrivals: int | None = None
    trace: str | None = None
    folder: str = ""
    to_run: bool = True


def given_settings(
    horizon: object = None,
    warmup: object = None,
    seed: object = None,
    arrivals: object = None,
    trace: str | None = None,
) -> Settings:
    """The caller's settings as plain numbers; those of NumPy and the like are numbers too.

    Raises TypeError for what is no number, or no whole one, and OverflowError for one out of range.
    """
    ends, starts = _time("horizon", horizon), _time("warmup", warmup)
    return Settings(ends, starts, _counted("seed", seed, 0), _counted("arrivals", arrivals, 1), trace)


def _time(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name!r} is a number, not {value!r}")
    return float(value)


def _counted(name: str, value: object, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name!r} is a whole number, not {value!r}")
    whole = int(value)
    if not least <= whole < 2**64:
        raise OverflowError(f"{name!r} lies between {least} and 2^64 - 1 ({2**64 - 1}), not at {whole}")
    return whole


def written_settings(run: tree.Item | None, build: Build, given: Settings) -> Settings:
    """The settings of `run { }`, replaced by those the caller gave."""
    from serq.lowering.declarations import constant_scope

    if run is None:
        return given
    assert isinstance(run, tree.RunDecl)
    found: dict[str, float] = {}
    for name, expr in run.settings:
        found[name] = constant(expr, constant_scope(build), f"'{name}'")
        if name in ("seed", "arrivals") and not (0 <= found[name] < 2**64 and found[name] % 1 == 0):
            message = f"{name!r} is a whole number between 0 and 2^64 - 1, not {found[name]:g}"
            raise fail("override", message, expr.at)
    return Settings(
        given.horizon if given.horizon is not None else found.get("horizon"),
        given.warmup if given.warmup is not None else found.get("warmup"),
        given.seed if given.seed is not None else _whole(found.get("seed")),
        given.arrivals if given.arrivals is not None else _whole(found.get("arrivals")),
        given.trace,
        given.folder,
        given.to_run,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def finish(program: ir.Program, settings: Settings) -> ir.Program:
    """The program with its settings, which must make a run possible."""
    horizon, warmup = settings.horizon, 0.0 if settings.warmup is None else settings.warmup
    if horizon is None and settings.to_run:
        hint = "give the end of the run: '--horizon T', from Python 'horizon=T', in a single file 'run { horizon T; }'"
        raise SerqError("override", "the horizon is missing", hint=hint)
    if horizon is not None and not (horizon > 0 and math.isfinite(horizon)):
        raise SerqError("override", f"the horizon is finite and above 0, not {horizon:g}")
    if not 0 <= warmup < (math.inf if horizon is None else horizon):
        raise SerqError("override", f"the warm-up lies between 0 and the horizon, not at {warmup:g}")
    if settings.arrivals is not None:
        if program.arrival.kind not in ("poisson", "renewal"):
            raise SerqError("override", "'arrivals' needs 'arrive poisson' or 'arrive renewal'")
        if settings.arrivals < 1:
            raise SerqError("override", f"'arrivals' is at least 1, not {settings.arrivals}")
    return replace(
        program,
        horizon=None if horizon is None else float(horizon),
        warmup=float(warmup),
        seed=1 if settings.seed is None else settings.seed,
        arrivals=settings.arrivals,
    )
