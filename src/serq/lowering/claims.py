"""Gauges and claims to the interchange form."""

from __future__ import annotations

from serq import ir
from serq.errors import fail
from serq.lowering.build import Scope
from serq.lowering.expressions import lower_number, resolve
from serq.syntax import tree

__all__ = ["lower_claim", "lower_gauge"]


def _anywhere(scope: Scope) -> str:
    """Measures look at the whole program: no side hides its names from them."""
    return "single" if scope.build.single_file else "everywhere"


def lower_gauge(decl: tree.GaugeDecl, scope: Scope) -> ir.Gauge:
    """A number whose time average is reported."""
    return ir.Gauge(decl.name, lower_number(decl.value, scope.to("gauge").but(side=_anywhere(scope)), "a gauge"))


def lower_claim(decl: tree.ClaimDecl, scope: Scope) -> ir.Claim:
    """A test over iterations or at the end."""
    given = None
    everywhere = scope.but(side=_anywhere(scope))
    if decl.given is not None:
        given = lower_number(decl.given, everywhere.to("given clause"), "a 'given' clause")
        scope.build.decisions.append((given, "a 'given' clause", decl.given.at))
    if decl.stage is None:
        return ir.Claim(
            decl.name, decl.kind, lower_number(decl.test, everywhere.to("end claim"), "a claim"), None, given
        )
    stage, ref = resolve(decl.stage, scope.to("constant"), "stage")
    if stage.engine is None:
        raise fail("structure", f"{stage.name!r} has no iterations: it is no step engine", decl.stage.at)
    index = int(ref.index.value) if isinstance(ref.index, ir.Num) else 0
    moment = everywhere.to("iteration claim").but(engine=stage.engine)
    test = lower_number(decl.test, moment, "a claim")
    return ir.Claim(decl.name, decl.kind, test, ref.base + index, given)
