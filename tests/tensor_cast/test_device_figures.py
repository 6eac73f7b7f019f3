"""Figures of device profiles: literals, properties over all profiles, and bad files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensor_cast.devices import Figure, Gap, Label, device_names, device_profile
from tensor_cast.devices.reading import read_profile
from tensor_cast.errors import DataFileError, MissingFigureError, UnknownNameError

ALL = [device_profile(name) for name in device_names()]
GIB = 2**30


@pytest.mark.parametrize(
    ("name", "memory", "bandwidth", "bf16"),
    [
        ("h200", 141e9, 4.8e12, 989e12),
        ("h100_sxm", 80e9, 3.35e12, 989e12),
        ("ascend_910b2", 64 * GIB, 1.6e12, 353.9e12),
        ("ATLAS_800_A3_752T_128G_DIE", 64 * GIB, 1.6e12, 353.9e12),
        ("mi300x", 192e9, 5.3e12, 1307.4e12),
    ],
)
def test_figures_are_those_of_the_sources(name: str, memory: float, bandwidth: float, bf16: float) -> None:
    profile = device_profile(name)
    assert profile.memory_bytes == memory
    assert profile.bandwidth_bytes_per_s == bandwidth
    assert profile.peak_flops("bfloat16") == bf16


def test_a_package_of_two_dies_is_twice_a_die() -> None:
    die, package = device_profile("ATLAS_800_A3_752T_128G_DIE"), device_profile("ascend_910c_package")
    assert package.memory_bytes == 2 * die.memory_bytes
    assert package.bandwidth_bytes_per_s == 2 * die.bandwidth_bytes_per_s


@pytest.mark.parametrize("profile", ALL, ids=device_names())
def test_every_value_has_a_source_and_a_confidence(profile: object) -> None:
    for entry in profile.entries:  # type: ignore[attr-defined]
        if isinstance(entry, Figure | Label):
            assert entry.sources
            assert all(source.strip() for source in entry.sources)
            assert entry.confidence in ("primary", "secondary", "own-estimate")
        if isinstance(entry, Figure):
            assert 0 < entry.low <= entry.high
            assert not entry.alternatives or entry.why
        if isinstance(entry, Gap):
            assert entry.reason


@pytest.mark.parametrize("profile", ALL, ids=device_names())
def test_narrow_types_are_no_slower_than_wide_ones(profile: object) -> None:
    rates = []
    for dtype in ("fp32", "bf16", "fp8"):
        entry = profile.entry(f"peaks.{dtype}")  # type: ignore[attr-defined]
        if isinstance(entry, Figure):
            rates.append(entry.in_base_unit)
    assert rates == sorted(rates)


def test_an_empty_figure_is_refused_by_name() -> None:
    with pytest.raises(MissingFigureError, match=r"^a100_sxm_40 has no memory\.capacity: unverified; "):
        _ = device_profile("a100_sxm_40").memory_bytes
    with pytest.raises(
        MissingFigureError, match=r"^h200_sxm has no peaks\.fp4: unsupported; .*; known: .*peaks\.bf16 989 TFLOPS"
    ):
        device_profile("h200_sxm").peak("fp4")


def test_a_figure_that_no_profile_uses_gets_the_nearest_name() -> None:
    with pytest.raises(
        UnknownNameError, match=r"no figure is called 'memory\.capacty' \(did you mean 'memory\.capacity'\?\)"
    ):
        device_profile("h200_sxm").figure("memory.capacty")


GOOD = """title: A device
vendor: Somebody
sources:
  page: a page
memory:
  capacity: {value: 80, unit: GB, source: page, confidence: primary}
"""


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("unit: GB", "unit: TFLOPS", r":6: memory\.capacity\.unit: got 'TFLOPS'"),
        ("value: 80", "value: .nan", r":6: cannot read '\.nan' as float"),
        ("value: 80", "value: -1", r":6: memory\.capacity\.value: got -1"),
        (", source: page", "", r":6: memory\.capacity\.source: "),
        ("source: page", "source: pge", r"'pge'"),
        ("confidence: primary", "confidence: sure", r":6: memory\.capacity\.confidence: got 'sure'"),
        ("capacity:", "capacty:", r"unknown key"),
        ("vendor: Somebody", "title: twice", r"duplicate key 'title'"),
    ],
)
def test_a_bad_profile_is_refused_with_its_place(tmp_path: Path, was: str, becomes: str, said: str) -> None:
    file = tmp_path / "device.yaml"
    file.write_text(GOOD)
    assert read_profile(file).memory_bytes == 80_000_000_000
    assert was in GOOD
    file.write_text(GOOD.replace(was, becomes))
    with pytest.raises(DataFileError, match=said):
        read_profile(file)
