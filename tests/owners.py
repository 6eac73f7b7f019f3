"""Everybody who may be asked about one operator: the base, the wrapper, the switch and the empirical model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tensor_cast import InterpolatingDataSource, LeafOp, Miss, ParallelConfig, ProfilingDataSource, QueryResult
from tensor_cast.devices import device_profile
from tensor_cast.performance_model.base import OperatorTime
from tensor_cast.performance_model.empirical import EmpiricalModel
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.dispatch import path_for
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath

Answer = QueryResult | Miss


class Owners:
    """One database, one way of matching, one expert-parallel size."""

    def __init__(self, database: ProfilingDatabase, matching: str | None = None, ep_size: int | None = None) -> None:
        device = database.mapping.header.get("device", "")
        profile = device_profile(device) if device.startswith("ATLAS") else None
        parallel = ParallelConfig(expert_parallel_size=ep_size)
        self.base = ProfilingDataSource(database, profile, parallel, exact_match=matching)
        self.wrapper = InterpolatingDataSource(self.base)
        self.switched = InterpolatingDataSource(self.base, disable_interpolation=True)

    @property
    def matching(self) -> str:
        return self.base.exact_match

    @cached_property
    def model(self) -> EmpiricalModel:
        return EmpiricalModel(self.wrapper)

    @cached_property
    def switched_model(self) -> EmpiricalModel:
        return EmpiricalModel(self.switched)

    def path(self, entry: OperatorEntry) -> OperatorPath | Miss:
        return path_for(entry, strict=self.matching == "strict")

    def disagreements(self, leaf: LeafOp) -> Iterator[str]:
        """What RFC 3.1 has one owner for and two give differently; nothing where all agree."""
        base, wrapped, switched = (source.query(leaf) for source in (self.base, self.wrapper, self.switched))
        if switched != base:
            yield f"the switch gives {switched}, the base {base}"
        if isinstance(base, QueryResult) and self._one_owner(leaf) and not self._same(leaf, base, wrapped):
            yield f"the wrapper gives {wrapped}, the base {base}"
        for model, answer in ((self.model, wrapped), (self.switched_model, switched)):
            found = model.time(leaf)
            if not _agrees(found, answer):
                yield f"the empirical model gives {found}, its source {answer}"

    def _one_owner(self, leaf: LeafOp) -> bool:
        """Compatible matching leaves the exact matches of four paths to the wrapper, which compares more."""
        entry = self.base.entry(leaf)
        path = None if entry is None else self.path(entry)
        return self.matching == "strict" or not (isinstance(path, OperatorPath) and path.owns(leaf))

    def _same(self, leaf: LeafOp, base: QueryResult, wrapped: Answer) -> bool:
        """One number from one source and one row; or an interpolation of a kernel that comes before the row's."""
        if isinstance(wrapped, Miss):
            return False
        if (wrapped.latency_us, wrapped.source, _rows(wrapped)) == (base.latency_us, base.source, _rows(base)):
            return True
        entry = self.base.entry(leaf)
        order = () if entry is None else entry.kernels
        ran = [found.details["kernel_type"] for found in (wrapped, base)]
        return wrapped.source == "INTERPOLATED" and set(ran) <= set(order) and order.index(ran[0]) < order.index(ran[1])


def _rows(answer: QueryResult) -> list[tuple[object, object]]:
    return [(row.get("file"), row.get("line", row.get("row"))) for row in answer.details.get("matched_row_meta", ())]


def _agrees(found: OperatorTime, answer: Answer) -> bool:
    """The model's one leaf is the answer, or the miss with its reason; a composite's leaves add up to it."""
    if isinstance(answer, Miss):
        return len(found.leaves) != 1 or (not found.complete and found.leaves[0].reason == answer.code)
    if answer.source == "PARTIAL":
        return True
    if len(found.leaves) == 1:
        [part] = found.leaves
        return (part.latency_us, str(part.source).upper()) == (answer.latency_us, str(answer.source))
    latencies = [part.latency_us for part in found.leaves]
    return None not in latencies and abs(sum(map(float, filter(None, latencies))) - answer.latency_us) < 1e-9
