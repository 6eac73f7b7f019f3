"""`castq ops` and `castq axes`: every operator of a database, and where it was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

MAPPING = """
tables:
  Product:
    files: [gemm]
    latency_unit: us
    axes: {M: m, K: k, N: n}
    regime: {quant: dtype}
    variant: kernel
operator_mappings:
  aten.mm.default: {kernel_type: Product, facts: {family: matmul}, notes: measured by hand}
  tensor_cast.fp8_linear.default: {kernel_type: Absent, facts: {family: matmul}}
  aten.view.default: {zero_cost: true}
"""
TABLE = "dtype,kernel,m,k,n,latency\nbfloat16,a,1,8,3,1\nbfloat16,b,4,8,3,2\nfp8,a,16,8,3,3\nfp8,a,32,8,3,0\n"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "op_mapping.yaml").write_text(MAPPING)
    (tmp_path / "gemm.csv").write_text(TABLE)
    return tmp_path


def test_ops_lists_operators_attributes_and_kernels(castq: Any, own: Any) -> None:
    document = json.loads(castq("ops", "-d", str(own), "--json").out)
    assert [line["operator"] for line in document] == [
        "aten.mm.default",
        "tensor_cast.fp8_linear.default",
        "aten.view.default",
    ]
    assert document[0] == {
        "operator": "aten.mm.default",
        "path": "tabulated",
        "inputs": ["x", "weight"],
        "attributes": ["quant", "kernel_source"],
        "kernels": ["Product"],
        "measured": ["Product"],
        "notes": "measured by hand",
    }
    assert (document[1]["kernels"], document[1]["measured"]) == (["Absent"], [])
    assert document[2]["path"] == "zero cost"
    shown = castq("ops", "-d", str(own))
    assert shown.code == 0
    assert "aten.mm.default" in shown.out
    assert "2 more operators have no table of their own; --all lists them" in shown.out
    assert "aten.view.default" in castq("ops", "-d", str(own), "--all").out


def test_axes_shows_ranges_facts_and_kernels(castq: Any, own: Any) -> None:
    [kernel] = json.loads(castq("axes", "-d", str(own), "--op", "aten.mm.default", "--json").out)
    assert kernel["kernel"] == "Product"
    assert kernel["points"] == 3
    assert kernel["axes"] == {"M": [1, 4, 16], "K": [8], "N": [3]}
    assert kernel["facts"] == {"quant": ["bfloat16", "fp8"]}
    assert kernel["variants"] == ["a", "b"]
    assert kernel["regimes"] == [
        {"facts": {"quant": "bfloat16"}, "points": 2, "axes": {"M": [1, 4], "K": [8, 8], "N": [3, 3]}},
        {"facts": {"quant": "fp8"}, "points": 1, "axes": {"M": [16, 16], "K": [8, 8], "N": [3, 3]}},
    ]
    shown = castq("axes", "-d", str(own), "--op", "aten.mm.default").out
    assert "M: 1..16: 1, 4, 16" in shown
    assert "quant: bfloat16, fp8" in shown


def test_axes_of_tensor_tables_and_collectives(castq: Any, demo: Any) -> None:
    [kernel] = json.loads(castq("axes", "-d", str(demo), "--op", "tensor_cast.all_reduce.default", "--json").out)
    assert kernel["facts"]["num_devices"] == [2, 8, 16]
    assert kernel["axes"]["message_bytes"][0] == 128
    attention = json.loads(castq("axes", "-d", str(demo), "--op", "tensor_cast.attention.default", "--json").out)
    assert attention[0]["axes"]["seq"] == [128, 512, 1024, 2048, 4096, 8192, 16384, 32768], "lengths, not their roots"
    composite = castq("axes", "-d", str(demo), "--op", "tensor_cast.matmul_all_reduce.default").out
    assert "hcom_allReduce_: no rows; its measurements are found through its children" in composite


def test_every_operator_of_a_database_can_be_shown(demo: Any) -> None:
    from castq.catalogue import list_operators, measured_axes
    from tensor_cast import open_database

    database = open_database(demo)
    for line in list_operators(database):
        for kernel in measured_axes(database, line.name):
            assert kernel.problem or kernel.points == sum(regime.points for regime in kernel.regimes)


def test_an_unknown_operator_gets_the_nearest_spelling(castq: Any, own: Any) -> None:
    ran = castq("axes", "-d", str(own), "--op", "aten.nm.default")
    assert ran.code == 2
    assert "did you mean 'aten.mm.default'?" in ran.err


@pytest.mark.parametrize("command", ["ops", "axes"])
def test_help_has_an_example(castq: Any, command: Any) -> None:
    assert f"Example: castq {command} -d h200_sxm/vllm/0.24.0" in castq(command, "--help").out


def test_a_mapping_of_ones_own_and_no_cache(castq: Any, own: Any, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(MAPPING.replace("aten.mm.default", "aten.other.default"))
    ran = castq("ops", "-d", str(own), "--mapping", str(tmp_path / "other.yaml"), "--no-cache")
    assert "aten.other.default" in ran.out
    mine = ("--mapping", str(tmp_path / "other.yaml"))
    assert castq("db", "check", str(own), *mine).code == 0
    asked = ("lookup", "-d", str(own), "--op", "aten.mm.default", "--input", "4,8:bf16", "--input", "8,3:bf16")
    assert "unmapped:aten.mm.default" in castq(*asked, *mine).out
    assert castq(*asked, "--no-cache", "--attr", "kernel_source=b").out.startswith("2 us; MEASURED")
