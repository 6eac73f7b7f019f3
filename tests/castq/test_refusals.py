"""Every reason why a database has no answer, with the whole line a person reads: each names what that person can do.

A new `MissReason` fails here until it has a question that meets it and a line in the guide.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import refusals_of_lookup
import refusals_of_paths
from refusals import MM, RANKS, TRIANGLE, Asked, collected, columns, decode, dense, latent, moe, product
from specialized_rows import dfc
from support import miss, mm, write_database
from tensor_cast import Miss, ProfilingDataSource, QueryResult
from tensor_cast.performance_model.profiling_database.data_source import MissReason
from tensor_cast.performance_model.profiling_database.interpolation_math import griddata_linear_interp

GUIDE = Path(__file__).parents[2] / "docs" / "databases.md"
CASES = (*refusals_of_lookup.CASES, *refusals_of_paths.CASES)
IDS = [f"{reason}-{i}" for i, (reason, _, _) in enumerate(CASES)]

# points, values and target that `griddata_linear_interp` refuses: its arguments are no rows of a table
UNEVEN = [(0, 0), (1, 0), (0, 1)]
OF_THE_MATH: dict[MissReason, tuple[Any, Any, Any]] = {
    MissReason.INVALID_ARRAY_RANK: ([1, 2, 3], [1, 2, 3], [1]),
    MissReason.POINT_SHAPE_MISMATCH: (UNEVEN, [1, 2], [0, 0]),
    MissReason.INSUFFICIENT_POINTS: (UNEVEN[:2], [1, 2], [0, 0]),
    MissReason.NON_FINITE_INPUT: ([*UNEVEN[:2], (0, float("inf"))], [1, 2, 3], [0, 0]),
    MissReason.LATENCY_GUARD_REJECTED: (UNEVEN, [-1, -2, -3], [0.2, 0.2]),
}

# Names of Phase 1 that stay, because reports and scripts may know them; nothing gives them any more.
NEVER_GIVEN = (
    (MissReason.WRAPPER_NOT_APPLICABLE, "documented zeros are answered before any path"),
    (MissReason.WRAPPER_INTERPOLATION_FAILED, "every path names the reason of its own"),
    (MissReason.INPUT_COUNT_MISMATCH, "a missed child of a composite is named by its kernel and cause"),
    (MissReason.ATTENTION_SPARSE_MODE_UNKNOWN, "the layout tells the mask where no attribute does"),
    (MissReason.ATTENTION_INPUT_LAYOUT_UNAVAILABLE, "the query's rank tells the layout"),
    (MissReason.BATCH_AXIS_UNCONSTRAINED, "with the context lengths the number of requests is known"),
    (MissReason.GRIDDATA_FAILED, "each failure of the triangulation has a reason of its own"),
    (MissReason.EMPTY_RESULT, "a simplex without weights; Qhull finds no target in such a one"),
)

# Reasons in the details of a miss that has another one, as a program reads them there.
IN_DETAILS = {
    MissReason.WRAPPER_COMMUNICATION_OWNED_BY_BASE: ("wrapper_reason", collected()),
    MissReason.WRAPPER_COMPOSITE_OWNED_UPSTREAM: ("wrapper_reason", latent()),
    MissReason.CANDIDATE_GROUP_FAILED: ("path_reason", moe(dfc(400), setting=RANKS)),
    MissReason.COMPUTE_MULTIDIM_INTERPOLATION_FAILED: ("path_reason", product(mm(400, 64, 32))),
    MissReason.ATTENTION_CANDIDATE_GROUP_FAILED: ("path_reason", dense(decode())),
}

# What the machine lacks, and what a source of one's own says.
WITHOUT_SCIPY = (
    "scipy_unavailable; kernels MatMulV2; asked M=40, K=100, N=32; measured M 16..64, K 64..256; "
    "two or three axes need SciPy: pip install '.[simplex]' in a checkout of castq"
)
OF_ITS_OWN = "lookup_miss:meter unplugged"
APART = {MissReason.SCIPY_UNAVAILABLE: WITHOUT_SCIPY, MissReason.LOOKUP_MISS: OF_ITS_OWN}


@pytest.mark.parametrize(("reason", "asked", "sentence"), CASES, ids=IDS)
def test_a_refusal_says_what_to_do(tmp_path: Path, reason: MissReason, asked: Asked, sentence: str) -> None:
    assert asked.answer(tmp_path).line.replace(str(tmp_path / "tiny"), "DB") == f"no answer: {sentence}"
    assert str(reason) in sentence
    assert sentence != str(reason)


def test_every_reason_has_its_row() -> None:
    rows = [{reason for reason, _, _ in CASES}, set(OF_THE_MATH), {reason for reason, _ in NEVER_GIVEN}]
    rows += [set(IN_DETAILS), set(APART)]
    assert sorted(set(MissReason).difference(*rows)) == []
    assert sum(map(len, rows)) == len(MissReason)


def test_without_scipy_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.spatial", None)
    assert product(mm(40, 100, 32), TRIANGLE).answer(tmp_path).line == f"no answer: {WITHOUT_SCIPY}"


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "table.parquet").write_bytes(b"PAR1")
    assert columns(mm(16, 64, 32), text="").answer(tmp_path).line == (
        "no answer: csv_not_found; kernels Rows; table unreadable: reading parquet needs pyarrow, which is not "
        "installed: pip install '.[parquet]' in a checkout of castq (table.parquet)"
    )


class Own(ProfilingDataSource):
    """A source of one's own with reasons of its own."""

    def lookup(self, op: object) -> QueryResult | None:
        return None

    @property
    def last_miss_reason(self) -> str:
        return "meter unplugged"


def test_a_reason_of_ones_own_is_passed_on(tmp_path: Path) -> None:
    where = write_database(tmp_path, {}, {"aten.mm.default": MM})
    assert str(Own(where).query(mm(16, 64, 32))) == f"no answer: {OF_ITS_OWN}"


@pytest.mark.parametrize("reason", OF_THE_MATH)
def test_the_math_names_what_it_cannot_use(reason: MissReason) -> None:
    points, values, target = OF_THE_MATH[reason]
    assert griddata_linear_interp(points, values, target, return_details=True) == (None, {"reason": str(reason)})
    assert str(Miss(reason, "rows")) == f"no answer: {reason}:rows"


@pytest.mark.parametrize(("reason", "why"), NEVER_GIVEN)
def test_a_name_of_phase_1_still_has_its_line(reason: MissReason, why: str) -> None:
    assert str(Miss(reason, "kernel", {"hint": why})) == f"no answer: {reason}:kernel; {why}"


@pytest.mark.parametrize("reason", IN_DETAILS)
def test_what_is_passed_over_stands_in_the_details(tmp_path: Path, reason: MissReason) -> None:
    key, asked = IN_DETAILS[reason]
    found = miss(asked.answer(tmp_path).outcome)
    assert str(found.details[key]).partition(":")[0] == str(reason)
    assert found.reason is not reason


def test_the_guide_lists_every_reason_with_a_line_that_is_printed() -> None:
    _, _, section = GUIDE.read_text(encoding="utf-8").partition("\n## When it refuses\n")
    printed = {f"{reason}: {sentence}" for reason, _, sentence in CASES}
    printed |= {f"{reason}: {sentence}" for reason, sentence in APART.items()}
    listed: list[str] = []
    for line in section.splitlines():
        names, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
        if line.startswith("| `"):
            reasons = re.findall(r"`([a-z_0-9]+)`", names)
            listed += reasons
            assert len(cells) == 1 or f"{reasons[0]}: {cells[0].strip('`')}" in printed, names
            assert cells[-1], names
    assert sorted(listed) == sorted(map(str, MissReason))
