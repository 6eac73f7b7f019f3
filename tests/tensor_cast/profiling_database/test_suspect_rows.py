"""A last line without a line end may be cut inside its latency: it is used, named, and marked in every answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import DEVICE, collective, hit, mm
from tensor_cast import InterpolatingDataSource, ProfilingDataSource, QuerySource
from tensor_cast.devices import device_profile

HEADER = "Input Shapes,Input Data Types,Input Formats,Average Duration(us)\n"
REASON = "no line end: the row may be cut off"


def line(m: int, latency: str) -> str:
    return f'"{m},256;256,128",DT_BF16;DT_BF16,ND;ND,{latency}'


def opened(folder: Path, text: str) -> InterpolatingDataSource:
    (folder / "MatMulV2.csv").write_bytes(text.encode())
    (folder / "op_mapping.yaml").write_text("operator_mappings:\n  aten.mm.default: {kernel_type: MatMulV2}\n")
    return InterpolatingDataSource(ProfilingDataSource(folder))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_answers_that_rest_on_a_cut_row_say_so(tmp_path: Path, end: str) -> None:
    """`200.75` cut to `200` reads as a number; the row is all that can tell."""
    text = (HEADER + line(64, "100.25") + "\n" + line(128, "200")).replace("\n", end)
    data = opened(tmp_path, text)
    exact, between, other = (hit(data.query(mm(m, 256, 128))) for m in (128, 96, 64))
    assert (exact.latency_us, exact.source) == (200.0, QuerySource.MEASURED)
    for answer in (exact, between):
        assert answer.details["suspect_row"] == [f"MatMulV2.csv:3: {REASON}"]
        assert "suspect_row MatMulV2.csv:3" in str(answer)
    assert "suspect_row" not in other.details
    notes = data.database.report("MatMulV2").notes
    assert notes == ["last line 3 has no line end: its row may be cut off and is flagged suspect_row"]
    assert data.database.report("MatMulV2").status == "ok"


def test_a_repeat_that_is_cut_marks_the_median(tmp_path: Path) -> None:
    """Repeats merge by median (decision 002.5), so the middle of three rests on all of them."""
    rows = [line(64, "10"), line(64, "12"), line(128, "30"), line(64, "1")]
    answer = hit(opened(tmp_path, HEADER + "\n".join(rows)).query(mm(96, 256, 128)))
    assert answer.latency_us == 20.0  # halfway between the median 10 and 30
    assert answer.details["suspect_row"] == [f"MatMulV2.csv:5: {REASON}"]


@pytest.mark.parametrize("tail", ["\n", "\r\n", "\n\n"])
def test_a_complete_file_has_no_suspect(tmp_path: Path, tail: str) -> None:
    data = opened(tmp_path, HEADER + line(64, "100.25") + tail)
    assert "suspect_row" not in hit(data.query(mm(64, 256, 128))).details
    assert data.database.report("MatMulV2").notes == []


def test_a_cut_row_that_is_rejected_marks_no_other(tmp_path: Path) -> None:
    data = opened(tmp_path, HEADER + line(64, "100.25") + "\n" + line(128, "0"))
    assert "suspect_row" not in hit(data.query(mm(64, 256, 128))).details
    assert dict(data.database.report("MatMulV2").rejected) == {"latency_zero": 1}
    assert len(data.database.report("MatMulV2").notes) == 1


def test_a_cut_collective_is_marked(tmp_path: Path) -> None:
    text = "message_bytes,num_devices,dtype,topology_tier,Duration(us)\n1000,8,DT_BF16,1,10\n2000,8,DT_BF16,1,2"
    (tmp_path / "hcom_allReduce_.csv").write_text(text)
    entry = "{kernel_type: hcom_allReduce_, category: communication}"
    (tmp_path / "op_mapping.yaml").write_text(f"operator_mappings:\n  tensor_cast.all_reduce.default: {entry}\n")
    data = ProfilingDataSource(tmp_path, device_profile(DEVICE))
    group = tuple(range(8))
    assert hit(data.query(collective("all_reduce", 1000, group))).details["suspect_row"] == [
        f"hcom_allReduce_.csv:3: {REASON}"
    ]
    assert "suspect_row" not in hit(data.query(collective("all_reduce", 500, group))).details
