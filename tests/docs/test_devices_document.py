"""docs/devices.md is what the profiles say today."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_table import devices_text, main
from tensor_cast.devices import device_names

WRITTEN = (Path(__file__).parents[2] / "docs/devices.md").read_text(encoding="utf-8")


def test_the_document_is_what_the_generator_writes() -> None:
    assert devices_text() == WRITTEN, "run: python tools/device_table.py"


def test_every_device_has_a_row_of_figures_and_one_of_sources() -> None:
    for name in device_names():
        assert WRITTEN.count(f"\n| `{name}` | ") >= 2


@pytest.mark.parametrize(
    "row",
    [
        "| `h200_sxm` | NVIDIA H200 SXM | 141 GB (P) | 4.8 TB/s (P) | 989 TFLOPS (P) | 1979 TFLOPS (S) | ",
        "| `a100_sxm` | NVIDIA A100 SXM 80 GB | 80 GB (P) | 2.039 TB/s (P) | 312 TFLOPS (P) | *unsupported* |",
        "| `rtx_4090` | FP8 | 330.3 TFLOPS | 660.6 TFLOPS (S) | serving kernels accumulate in FP32 |",
    ],
)
def test_figures_marks_and_gaps_stand_in_the_row(row: str) -> None:
    assert row in WRITTEN


def test_check_tells_a_stale_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 1
    assert main([]) == 0
    assert main(["--check"]) == 0
    page = tmp_path / "docs/devices.md"
    page.write_text(page.read_text(encoding="utf-8").replace("141 GB", "142 GB"), encoding="utf-8")
    assert main(["--check"]) == 1
    assert main(["--chek"]) == 2
