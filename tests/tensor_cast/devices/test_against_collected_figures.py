"""Profiles against the table of figures that they were made from, row by row; the table is no part of the project."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

import pytest

from support import SHARED
from tensor_cast.devices import DeviceProfile, Entry, Figure, Gap, Label, device_names, device_profile
from tensor_cast.devices.vocabulary import UNITS

TABLE: Final = SHARED / "data" / "devices" / "devices.csv"
pytestmark = pytest.mark.skipif(
    not TABLE.is_file(), reason="the collected figures (../shared/data/devices) are not here"
)

Row = dict[str, str]
OURS: Final = {
    "a100_sxm_80": "a100_sxm",
    "ascend_910c_die": "ATLAS_800_A3_752T_128G_DIE",
    "ascend_950dt_atlas950": "ascend_950dt",
    "ascend_950pr_atlas350": "ascend_950pr",
}
WITHOUT_A_PROFILE: Final = ("gaudi3", "generic_nvidia", "tool_*")
# Field of the table, as a pattern -> entries of a profile, as patterns.
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "mem_capacity": ("memory.capacity",),
    "mem_bw": ("memory.bandwidth",),
    "mem_bw_effective": ("memory.effective_bandwidth",),
    "peak_fp32_hf32": ("peaks.hf32",),
    "peak_int8_cann_derived": ("peaks.int8",),
    **{f"peak_{name}": (f"peaks.{name}",) for name in ("tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")},
    "peak_fp32": ("peaks.fp32", "vector.fp32"),
    "vector_fp32": ("vector.fp32",),
    "vector_bf16": ("vector.bf16",),
    "cube_cores": ("chip.matrix_cores",),
    "vector_cores": ("chip.vector_cores",),
    "cube_clock": ("chip.clock",),
    "sm_or_cu_count": ("chip.compute_units",),
    "l2": ("chip.l2",),
    "l2_or_llc": ("chip.l2", "chip.llc"),
    "shared_sram": ("chip.shared_sram",),
    "scratchpad_per_engine": ("chip.scratchpad_per_engine",),
    "logical_devices_per_card": ("chip.devices",),
    "low_bin_profile": ("chip.low_bin",),
    "power": ("chip.power",),
    "product": ("chip.product",),
    "msmodeling_profile": ("chip.profile",),
    "intra_bw_per_dir_per_peer": ("links.*.per_link",),
    "intra_bw_per_dir*": ("links.node.bandwidth", "links.domain.bandwidth"),
    "intra_latency": ("links.node.latency",),
    "intra_link": ("links.node.name", "links.domain.name"),
    "inter_node_bw_per_dir": ("links.network.bandwidth",),
    "inter_node_latency": ("links.network.latency",),
    "inter_node_link": ("links.network.name",),
    "devices_per_node": ("links.node.devices",),
    "cards_per_node": ("links.node.devices",),
    "scale_up_domain": ("links.node.devices", "links.domain.devices"),
    "max_domain": ("links.domain.devices", "links.node.devices"),
    "supernode": ("links.domain.devices",),
    "pcie": ("links.host.*",),
    "pcie_bw_per_dir": ("links.host.bandwidth",),
    "pcie_group_bw": ("links.switch.bandwidth",),
    "cross_cpu_bw": ("links.node.bandwidth",),
    "mesh4_bw_per_dir": ("links.mesh.bandwidth",),
    "card_to_card": ("links.node.name",),
    "d2d_*": ("links.package.*",),
    "sio_bw_per_dir*": ("links.package.bandwidth",),
    "sio_latency": ("links.package.latency",),
    "hccs_l1_bw_per_dir": ("links.node.bandwidth",),
    "hccs_l1_latency": ("links.node.latency",),
    "hccs_l2_bw_per_dir": ("links.domain.bandwidth",),
    "hccs_l2_latency": ("links.domain.latency",),
    "roce_bw_per_dir": ("links.network.bandwidth",),
    "rdma_plane": ("links.network.bandwidth",),
    "ub_bw*": ("links.domain.bandwidth",),
    "ub_latency_summary": ("links.domain.latency",),
    "ub_link_bw": ("links.mesh.per_link",),
    "ub_read_bw_measured": ("links.*.measured_bandwidth",),
    "ub_read_latency_512B": ("links.node.latency", "links.domain.latency"),
    "kernel_floor_bf16_gemm_graph": ("launch.matmul_bf16",),
    "kernel_floor_matmul_graph": ("launch.matmul_bf16",),
    "kernel_floor_w8a8_graph": ("launch.matmul_int8",),
    "eager_dispatch_per_op": ("launch.eager_op",),
    "graph_vs_eager": ("launch.*_call",),
    "eager_vs_graph_1B_forward": ("launch.*_call",),
    "mem_op_const_aic": ("launch.memory_op",),
    "p2p_latency_aic": ("launch.point_to_point",),
    "decode_step_model": ("host.decode_*",),
    "host_overhead_per_step": ("host.*",),
    "prefill_model": ("host.prefill_*",),
    "gemm_frac_bf16_best_shape": ("achieved.bf16_best",),
    "gemm_frac_bf16_max": ("achieved.bf16_best",),
    "gemm_frac_bf16_large_median": ("achieved.bf16_large",),
    "gemm_frac_bf16_median_large": ("achieved.bf16_large",),
    "gemm_frac_bf16_b": ("achieved.bf16_search",),
    "gemm_frac_fp8_best_shape": ("achieved.fp8_best",),
    "gemm_frac_fp8_large_median": ("achieved.fp8_large",),
    "gemm_frac_int8_max": ("achieved.int8_best",),
    "gemm_frac_int8_median_large": ("achieved.int8_large",),
    "gemm_frac_nvfp4_median_and_best": ("achieved.fp4_*",),
    "gemm_frac_prefill": ("achieved.prefill_compute",),
    "int8_gemm_frac": ("achieved.int8_large",),
    "mamf_bf16": ("achieved.bf16_search",),
    "mamf_fp8": ("achieved.fp8_search",),
    "gemv_bw_frac_best": ("achieved.weight_read_best",),
    "gemv_bw_frac_median": ("achieved.weight_read",),
    "gemv_bw_max": ("achieved.weight_read_best_bandwidth",),
    "gemv_bw_median": ("achieved.weight_read_bandwidth",),
    "elementwise_bw_one_way": ("achieved.elementwise_bandwidth",),
    "mem_frac_decode": ("achieved.decode_memory",),
    "mla_decode_bw_frac": ("achieved.decode_memory",),
    "mem_op_eff_aic": ("achieved.assumed_memory",),
    "mem_eff_msmodeling": ("achieved.assumed_memory",),
    "compute_eff_msmodeling": ("achieved.assumed_compute",),
    **{
        f"{maker}_{table}_n{ranks}_{figure}": (f"collectives.{ours}_{ranks}_{name}",)
        for maker in ("nccl", "rccl")
        for table, ours in (("allgather", "all_gather"), ("allreduce", "all_reduce"))
        for ranks in (2, 4, 8)
        for figure, name in (("busbw", "bus_bandwidth"), ("small", "latency"))
    },
    **{
        f"{table}_algbw_n{ranks}": (f"collectives.{ours}_{ranks}_algorithm_bandwidth",)
        for table, ours in (("allgather", "all_gather"), ("allreduce", "all_reduce"))
        for ranks in (2, 4, 8)
    },
    "nccl_alltoall_max_n_busbw": ("collectives.all_to_all_bus_bandwidth",),
    "allreduce_1node_busbw_16GiB": ("collectives.all_reduce_8_bus_bandwidth",),
    "custom_allreduce_small_graph": ("collectives.custom_all_reduce_graph",),
    "custom_allreduce_small_eager": ("collectives.custom_all_reduce_eager",),
}
ABSENT: Final = ("n/a", "not found", "not published")
IN_WORDS: Final = ("intra_link", "pcie", "product", "card_to_card", "msmodeling_profile")
"""Names, which a profile need not repeat letter by letter, but must have."""
_NUMBER: Final = re.compile(r"(?<![\w.])\.?\d+(?:\.\d+)?")


def _rows() -> list[Row]:
    if not TABLE.is_file():
        return []
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


ROWS: Final = _rows()


def _profile(row: Row) -> DeviceProfile | None:
    name = OURS.get(row["device"], row["device"])
    return device_profile(name) if name in device_names() else None


def _patterns(field: str) -> tuple[str, ...]:
    return next((found for wanted, found in FIELDS.items() if fnmatchcase(field, wanted)), ())


def _entries(profile: DeviceProfile, field: str) -> list[Entry]:
    return [entry for entry in profile.entries if any(fnmatchcase(entry.name, one) for one in _patterns(field))]


def _remembered(row: Row) -> bool:
    """The table marks it so, or names no source but memory."""
    return row["confidence"] == "unverified-memory" or row["source"].startswith("recalled")


def _figures(entry: Entry) -> Iterator[Figure]:
    if isinstance(entry, Figure):
        yield entry
    if not isinstance(entry, Label):
        for other in entry.alternatives:
            yield from _figures(other)


def _numbers(entry: Entry) -> Iterator[float]:
    """Every number of an entry: values, ranges, words, notes, and those that are not used."""
    texts = [entry.text, entry.note] if isinstance(entry, Label) else [getattr(entry, "note", "")]
    for text in texts:
        yield from map(float, _NUMBER.findall(text))
    if isinstance(entry, Figure):
        yield from (entry.low, entry.high)
    if not isinstance(entry, Label):
        for other in entry.alternatives:
            yield from _numbers(other)


def _stated(row: Row) -> list[float]:
    return [float(number) for number in _NUMBER.findall(row["value"])]


def _scale(row: Row) -> float | None:
    """What one of the row's unit is in the base unit; None for a unit in words."""
    word = row["unit"].split(" ")[0]
    return float(UNITS[word][1]) if word in UNITS else None


def difference(row: Row, profile: DeviceProfile) -> str:
    """How a row and the profile differ, or nothing."""
    entries = _entries(profile, row["field"])
    used = [entry for entry in entries if not isinstance(entry, Gap)]
    if row["value"] in ABSENT:
        return "ours has a figure" if used else ""
    if _remembered(row):
        return "" if not used or _stated_by_others(row, used) else "ours is not empty"
    if not used:
        return "ours is empty"
    stated, scale = _stated(row), _scale(row)
    if row["field"] in IN_WORDS:
        return ""
    if not stated:
        return "no number is stated"
    plain = len(stated) == 1 and row["value"] == _NUMBER.findall(row["value"])[0]
    if plain and scale is not None:
        ours = [
            end * float(UNITS[one.unit][1]) for entry in used for one in _figures(entry) for end in (one.low, one.high)
        ]
        same = any(math.isclose(stated[0] * scale, end, rel_tol=1e-9) for end in ours)
    else:
        known = {number for entry in used for number in _numbers(entry)}
        same = set(stated) <= known
    return "" if same else f"ours is {', '.join(entry.shown for entry in used)}"


def _stated_by_others(row: Row, used: Sequence[Entry]) -> bool:
    """Whether rows from sources that were read fill every entry that a remembered row speaks of."""
    fields = [
        other["field"]
        for other in ROWS
        if other is not row and other["device"] == row["device"] and not _remembered(other)
    ]
    patterns = [one for field in fields for one in _patterns(field)]
    return all(any(fnmatchcase(entry.name, one) for one in patterns) for entry in used)


def test_every_row_is_in_a_profile() -> None:
    assert ROWS
    compared = [(row, profile) for row in ROWS if (profile := _profile(row)) is not None]
    found = [
        f"{row['device']}.{row['field']} = {row['value']} {row['unit']} ({row['confidence']}): {why}"
        for row, profile in compared
        if (why := difference(row, profile))
    ]
    assert found == []
    assert {profile.name for _, profile in compared} == set(device_names())


def test_every_field_is_known() -> None:
    fields = {row["field"] for row in ROWS if _profile(row) is not None}
    assert [field for field in sorted(fields) if not any(fnmatchcase(field, wanted) for wanted in FIELDS)] == []


def test_devices_without_a_profile_are_those_that_have_none_on_purpose() -> None:
    without = {row["device"] for row in ROWS if _profile(row) is None}
    assert [name for name in without if not any(fnmatchcase(name, one) for one in WITHOUT_A_PROFILE)] == []


@pytest.mark.parametrize(
    ("field", "value", "unit", "confidence", "why"),
    [
        ("mem_capacity", "141", "GB", "primary", ""),
        ("mem_capacity", "0.141", "TB", "primary", "ours is 141 GB"),
        ("mem_capacity", "142", "GB", "primary", "ours is 141 GB"),
        ("mem_capacity", "141", "GiB", "primary", ""),
        ("mem_bw", "4800", "GB/s", "primary", ""),
        ("peak_fp4", "n/a", "", "own-estimate", ""),
        ("peak_bf16", "n/a", "", "own-estimate", "ours has a figure"),
        ("peak_fp4", "1979", "TFLOPS", "primary", "ours is empty"),
    ],
)
def test_a_difference_is_found(field: str, value: str, unit: str, confidence: str, why: str) -> None:
    row = {
        "device": "h200_sxm",
        "field": field,
        "value": value,
        "unit": unit,
        "confidence": confidence,
        "source": "a page",
    }
    assert difference(row, device_profile("h200_sxm")) == why
