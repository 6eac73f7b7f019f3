"""What sweeps are drawn from: operators of every path, the axes they lie on, and the values worth asking there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from support import attention, mm
from tensor_cast import (
    InterpolatingDataSource,
    LeafOp,
    Miss,
    ParallelConfig,
    ProfilingDataSource,
    QueryResult,
    Requests,
    TensorSpec,
)
from tensor_cast.operators import build
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.dispatch import path_for
from tensor_cast.performance_model.profiling_database.many import ManyAnswers
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath

BF16 = "bf16"
ONE = TensorSpec((4096, 4096), "bfloat16")


def leaf(name: str, shapes: list[tuple[int, ...]], output: tuple[int, ...] = (), **more: Any) -> LeafOp:
    outputs = [(output, BF16)] if output else []
    return LeafOp.build(name, [(shape, BF16) for shape in shapes], outputs, **more)


def with_requests(name: str, shapes: list[tuple[int, ...]], requests: Requests, **attrs: Any) -> LeafOp:
    return leaf(name, shapes, shapes[0], requests=requests, attrs=attrs)


ASCEND_LEAVES = (
    mm(64, 5120, 768),
    leaf("aten.mm.default", [(64, 5120), (768, 5120)]),
    LeafOp("aten.mm.default", (ONE, ONE)),
    build.bmm(16, 64, 512, 128),
    build.bmm(1, 64, 512, 128),
    build.swiglu(64, 4096),
    build.swiglu((1, 64), 4096),
    build.rms_norm((2, 32), 5120),
    build.add_rms_norm(64, 5120),
    leaf("tensor_cast.quantize.default", [(2, 32, 7168), (7168,), (7168,)], (2, 32, 7168)),
    leaf("tensor_cast.apply_rope.default", [(1, 32, 64, 128), (1, 8, 64, 128), (1, 64, 128), (1, 64, 128)]),
    attention(16, 32, 128, [1024] * 16, query_lens=[1] * 16),
    attention(16, 32, 128, [1024] * 16, kv_heads=8, query_shape=(16, 32, 128)),
    attention(16, 32, 128, [1024] * 16, query_shape=(16, 32, 1, 128)),
    attention(64, 32, 128, [64], query_lens=[64], kv_heads=8),
)
GPU_LEAVES = (
    mm(64, 4096, 4096),
    leaf("aten.mm.default", [(2, 32, 4096), (1024, 4096)], (2, 32, 1024)),
    with_requests(
        "tensor_cast.attention.default",
        [(8, 4096), (64, 128, 8, 128), (64, 128, 8, 128)],
        Requests((1,) * 8, (2048,) * 8),
    ),
    with_requests(
        "tensor_cast.attention.default",
        [(4, 32, 1024, 128), (64, 128, 32, 128), (64, 128, 32, 128)],
        Requests((1024,) * 4, (1024,) * 4),
    ),
    with_requests(
        "tensor_cast.multihead_latent_attention.default",
        [(8, 128, 576), (64, 64, 576)],
        Requests((1,) * 8, (2048,) * 8),
    ),
    build.latent_bmm(128, 64, 128, 512, stage="pre"),
    build.latent_attention_block(
        8,
        7168,
        Requests((1,) * 8, (2048,) * 8),
        num_heads=128,
        cache_width=576,
        blocks=64,
        block_size=64,
        model="deepseek-ai/DeepSeek-V3",
        gemm_type="bfloat16",
    ),
)


@dataclass(frozen=True)
class Subject:
    """An operator in a database, with the values worth asking on each of its axes."""

    name: str
    source: InterpolatingDataSource
    disabled: InterpolatingDataSource
    leaf: LeafOp
    entry: OperatorEntry
    path: OperatorPath
    values: Mapping[str, Sequence[int]]

    def at(self, place: Mapping[str, int]) -> LeafOp:
        return self.path.moved(self.leaf, place, self.entry)


def subject(name: str, database: ProfilingDatabase, leaf: LeafOp, ep_size: int | None = None) -> Subject | None:
    """None where the operator lies on no axes of this database."""
    base = ProfilingDataSource(database, None, ParallelConfig(expert_parallel_size=ep_size))
    entry = base.entry(leaf)
    path = None if entry is None else path_for(entry)
    if entry is None or not isinstance(path, OperatorPath) or entry.zero_cost or entry.accepted_miss:
        return None
    source = InterpolatingDataSource(base)
    values = _values(source, leaf, entry, path)
    if not values:
        return None
    disabled = InterpolatingDataSource(base, disable_interpolation=True)
    return Subject(f"{name} {leaf.name}", source, disabled, leaf, entry, path, values)


def _values(
    source: InterpolatingDataSource, leaf: LeafOp, entry: OperatorEntry, path: OperatorPath
) -> dict[str, list[int]]:
    found: dict[str, set[int]] = {}
    for kernel in path.kernels(entry):
        table = source.database.table(kernel)
        if table is None:
            continue
        policy = source.database.mapping.policy(kernel, entry.kernel_type)
        targets = path.targets(source.base.context, leaf, entry, table, policy)
        for target in () if isinstance(targets, Miss) else targets:
            index = source.engine.index(path, table, entry, target.view)
            for axis, value in target.axes.items():
                held = found.setdefault(axis, {int(value)})
                for group in index.groups[:200]:
                    held |= _measured(
                        group.points.axes.get(axis), squared=bool(policy.axis_transform and axis == "seq")
                    )
    dims = {dim for spec in (*leaf.inputs, *leaf.outputs) for dim in spec.shape}
    return {axis: _around(values | dims) for axis, values in found.items()}


def _measured(column: object, *, squared: bool) -> set[int]:
    if column is None:
        return set()
    values = np.unique(np.asarray(column, dtype=np.float64))
    values = values[np.isfinite(values)]
    return {round(float(value) ** (2 if squared else 1)) for value in values}


def _around(values: set[int]) -> list[int]:
    """Each value, its neighbours, what pads it, the middle to the next one, and the smallest sizes there are."""
    ordered = sorted(value for value in values if 0 <= value < 2**20)
    found = {0, 1, 2, 3, *ordered}
    for low, high in zip(ordered, [*ordered[1:], 2 * (ordered or [1])[-1]], strict=True):
        found |= {low + 1, max(low - 1, 0), (low + high) // 2, -(-low // 16) * 16, -(-low // 64) * 64, low // 2}
    return sorted(found)


def differences(subject: Subject, columns: Mapping[str, Sequence[int]], *, disabled: bool = False) -> list[str]:
    """Points of a sweep at which `query_many` is not `query`, bit for bit and source for source."""
    source = subject.disabled if disabled else subject.source
    many = source.query_many(subject.leaf, **columns)
    found = []
    for at in range(len(many)):
        place = {axis: int(values[at]) for axis, values in columns.items()}
        single = source.query(subject.at(place))
        if _seen(many, at) != _wanted(single):
            found.append(f"{subject.name} at {place}: query_many {_seen(many, at)}, query {_wanted(single)}")
    return found


def _seen(many: ManyAnswers, at: int) -> tuple[object, ...]:
    source = many.sources[at]
    return ("miss",) if source is None else (str(source), float(many.latency_us[at]).hex(), int(many.dims[at]))


def _wanted(single: QueryResult | Miss) -> tuple[object, ...]:
    if not isinstance(single, QueryResult):
        return ("miss",)
    return str(single.source), single.latency_us.hex(), int(single.details.get("interpolation_dim", 0))
