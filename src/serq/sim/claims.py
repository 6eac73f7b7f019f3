"""What is read at the start of every iteration: claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serq.sim.engine.stage import EngineStage

if TYPE_CHECKING:
    from serq.sim.kernel import Kernel

__all__ = ["Claims"]


class Claims:
    """The claims of one run and how they stand."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        n = len(kernel.program.claims)
        self.checked, self.failures = [0] * n, [0] * n
        self.first: list[float | None] = [None] * n
        self.scope: list[int | None] = [None] * n

    def compile(self) -> None:
        kernel = self._kernel
        claims = kernel.program.claims
        self._tests = [kernel.function(claim.test) if claim.kind != "at_end" else None for claim in claims]
        self._given = [kernel.optional(claim.given) for claim in claims]

    def admit(self, serial: int, attrs: list[float]) -> None:
        """Note which claims a new session puts out of scope."""
        for i, given in enumerate(self._given):
            if given is not None and self.scope[i] is None and not given(attrs):
                self.scope[i] = serial

    def check(self, engine: EngineStage) -> None:
        self._kernel.ctx.arrived = float(self._kernel.population.arrivals)
        for i, claim in enumerate(self._kernel.program.claims):
            test = self._tests[i]
            if test is None or claim.stage != engine.position:
                continue
            self.checked[i] += 1
            value = test(self._kernel.no_attrs)
            failed = value == 0
            self.failures[i] += failed
            telling = failed if claim.kind == "every_iteration" else not failed
            if telling and self.first[i] is None:
                self.first[i] = self._kernel.ctx.now
