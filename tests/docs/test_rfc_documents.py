"""The two RFC documents: structural peers, and true of mappings, paths and tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from castq.rfc.rows import ACCOUNTED, RfcRow, load_rows
from rfc_document import Section, Table, code_spans, read_document
from tensor_cast.demo.writer import DEVICE, FRAMEWORK, VERSIONS
from tensor_cast.performance_model.profiling_database.dispatch import path_for
from tensor_cast.performance_model.profiling_database.mapping import op_mapping
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import (
    OperatorEntry,
    OpMapping,
    load_op_mapping,
)
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath, Target

ROOT = Path(__file__).parents[2]
# Subsections of each section; 3.4 and 4.1 to 4.4 have some of their own.
SUBSECTIONS = {"1": 3, "2": 2, "3": 4, "3.4": 2, "4": 4, "4.1": 1, "4.2": 1, "4.3": 2, "4.4": 3, "6": 3, "7": 3, "8": 4}


def _numbers(number: str) -> list[str]:
    below = (f"{number}.{i + 1}" for i in range(SUBSECTIONS.get(number, 0)))
    return [number, *(name for child in below for name in _numbers(child))]


NUMBERS = [name for i in range(1, 9) for name in _numbers(str(i))]
ROWS = load_rows().rows
# Row of RFC 5 -> path its selector leads to.
SELECTED = {
    "DispatchFFNCombine": "moe_fused",
    "Broadcast / Shared-token": "elementwise",
    "LightningIndexer": "lightning_indexer",
    "SparseFlashAttention": "sparse_attention",
    "Generic compute mapping refinements": "compute",
    "Quant-scale / Dynamic quant": "compute_scale",
    "Quant-scale / Quantized matrix compute": "quantized_matmul",
    "MLA cache update": "scatter_nd_update_mla",
}


@pytest.fixture(scope="module")
def english() -> dict[str, Section]:
    return read_document(ROOT / "docs/rfc/phase2_en.md")


@pytest.fixture(scope="module")
def chinese() -> dict[str, Section]:
    return read_document(ROOT / "docs/rfc/phase2_zh.md")


def _mapping(version: str) -> OpMapping:
    data = op_mapping.SHIPPED_MAPPINGS / DEVICE / FRAMEWORK
    return load_op_mapping(data / VERSIONS[version.removeprefix("v")] / "op_mapping.yaml")


MAPPINGS = {version: _mapping(version) for version in ("v0.13", "v0.15", "v0.18")}


def _table(sections: dict[str, Section], number: str, index: int = 0) -> Table:
    return sections[number].tables[index]


def test_sections_are_numbered_as_in_the_seed(english: Any, chinese: Any) -> None:
    """RFC 7.3.10: both documents hold the same sections in the same order."""
    assert [number for number in english if number] == NUMBERS
    assert list(chinese) == list(english)
    for number in english:
        assert chinese[number].level == english[number].level, number


def test_every_section_has_the_same_parts(english: Any, chinese: Any) -> None:
    """RFC 7.3.10: tables, list items, code blocks and paragraphs correspond one to one."""
    for number, section in english.items():
        peer = chinese[number]
        assert len(peer.items) == len(section.items), number
        assert peer.code_blocks == section.code_blocks, number
        assert peer.paragraphs == section.paragraphs, number
        shapes = [(len(table.header), len(table.rows)) for table in section.tables]
        assert [(len(table.header), len(table.rows)) for table in peer.tables] == shapes, number
        for table in (*section.tables, *peer.tables):
            assert {len(row) for row in table.rows} == {len(table.header)}, number


def test_cells_and_items_name_the_same_code(english: Any, chinese: Any) -> None:
    """RFC 7.3.10: code spans are equal, cell by cell."""
    for number, section in english.items():
        for ours, theirs in zip(section.tables, chinese[number].tables, strict=True):
            for row, peer in zip(ours.rows, theirs.rows, strict=True):
                assert [code_spans(cell) for cell in row] == [code_spans(cell) for cell in peer], (number, row)
        spans = [sorted(code_spans(item)) for item in section.items]
        assert [sorted(code_spans(item)) for item in chinese[number].items] == spans, number


@pytest.mark.parametrize("number", ["3.4.1", "5", "7.2"])
def test_categories_and_paths_are_the_same_words(english: Any, chinese: Any, number: Any) -> None:
    assert [row[:2] for row in english[number].tables[-1].rows] == [row[:2] for row in chinese[number].tables[-1].rows]


def test_versions_axes_and_ceilings_are_the_same_cells(english: Any, chinese: Any) -> None:
    for number, columns in (("3.4.1", slice(2, 6)), ("3.4.2", slice(2, 3))):
        pairs = zip(_table(english, number).rows, _table(chinese, number).rows, strict=True)
        assert all(row[columns] == peer[columns] for row, peer in pairs)


def test_both_name_each_other_and_the_date(english: Any, chinese: Any) -> None:
    for sections in (english, chinese):
        facts = [row[1] for row in _table(sections, "").rows]
        assert "2026-11-30" in facts
        assert "`tensor_cast.performance_model.profiling_database`" in facts
    assert "structural peers" in _table(english, "").rows[-1][1]
    assert "互为对等" in _table(chinese, "").rows[-1][1]


def test_the_chinese_text_is_chinese(chinese: Any) -> None:
    prose = [section.title for section in chinese.values() if section.number[:2] not in ("4.",)]
    assert all(re.search(r"[一-鿿]", title) for title in prose)


def test_table_341_is_the_row_file(english: Any) -> None:
    """RFC 7.3.10: operators, versions, axes and ceilings are those `castq rfc` puts to the test."""
    expected = [
        (
            row.category,
            row.subcategory,
            f"`{row.operator}`",
            ", ".join(row.claims),
            row.text(lambda claim: "; ".join(f"`{' + '.join(group)}`" for group in claim.axes) or "-"),
            row.text(lambda claim: claim.ceiling),
        )
        for row in ROWS
        if row.table == "3.4.1"
    ]
    assert [row[:6] for row in _table(english, "3.4.1").rows] == expected


def test_table_342_is_the_row_file(english: Any) -> None:
    listed = [(name, row[2]) for row in _table(english, "3.4.2").rows for name in code_spans(row[1])]
    assert listed == [(row.operator, ", ".join(row.claims)) for row in ROWS if row.table == "3.4.2"]


CLAIMS = [pytest.param(row, version, id=f"{row.operator}-{version}") for row in ROWS for version in row.claims]


@pytest.mark.parametrize(("row", "version"), CLAIMS)
def test_every_entry_exists_and_leads_where_stated(row: RfcRow, version: str) -> None:
    """RFC 7.3.1: each operator entry x version has the stated selector, path and ceiling."""
    claim, entry = row.claims[version], MAPPINGS[version].operators[row.operator]
    for name, value in claim.selector.items():
        found = getattr(entry, name)
        assert found if value is True else found == value, name
    path = path_for(entry)
    if claim.path in ACCOUNTED:
        assert claim.axes == ()
        zero = {"zero-cost": entry.zero_cost, "accepted-miss": bool(entry.accepted_miss)}
        assert zero.get(claim.path, not isinstance(path, OperatorPath))
        return
    assert isinstance(path, OperatorPath)
    assert path.name == claim.path
    groups = _groups(path, claim.axes)
    assert claim.axes == groups
    assert claim.ceiling == f"{max(map(len, groups))}D"


def _groups(path: OperatorPath, axes: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    table: Any = None
    target = Target({axis: 1.0 for group in axes for axis in group}, ())
    return tuple(path.axis_groups(target, table))


@pytest.mark.parametrize("number", range(len(SELECTED)))
def test_every_selector_of_section_5_leads_to_its_path(english: Any, number: Any) -> None:
    """RFC 7.3.1: the selectors of RFC 5, taken as written."""
    row = _table(english, "5", 1).rows[number]
    fields: dict[str, Any] = {"kernel_type": "Cast"}
    for name, _, value in (span.partition(": ") for span in code_spans(row[2])):
        if value:
            fields[name] = int(value) if value.isdigit() else value
    path = path_for(OperatorEntry("op", **fields))
    assert isinstance(path, OperatorPath)
    assert path.name == SELECTED[row[1]]


def test_fields_of_section_5_are_read(english: Any) -> None:
    header, *named = [code_spans(row[0])[0] for row in _table(english, "5").rows]
    assert OpMapping(path=None, header={header: "strict"}).strict
    assert not OpMapping(path=None, header={}).strict
    fields = OperatorEntry.__dataclass_fields__
    policies = op_mapping.KernelPolicy.__dataclass_fields__
    assert all(name in fields or name.rpartition(".")[2] in policies for name in named)


def test_path_and_matrix_rows_correspond(english: Any) -> None:
    """RFC 7.3.10: 5 and 7.2 list the same paths in the same order."""
    assert [row[:2] for row in _table(english, "7.2").rows] == [row[:2] for row in _table(english, "5", 1).rows]


def test_reasons_and_files_named_in_the_text_exist(english: Any) -> None:
    from tensor_cast.performance_model.profiling_database.data_source import MissReason

    known = {str(reason) for reason in MissReason}
    for row in _table(english, "6.2").rows:
        first = [span.partition(":")[0] for span in code_spans(row[1])]
        assert first[0] in known, row
    text = (ROOT / "docs/rfc/phase2_en.md").read_text(encoding="utf-8")
    assert all((ROOT / name).exists() for name in code_spans(text) if name.startswith("tests/"))


def test_links_lead_somewhere() -> None:
    for name in ("phase2_en.md", "phase2_zh.md"):
        text = (ROOT / "docs/rfc" / name).read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)]+)\)", text)
        assert links
        assert all((ROOT / "docs/rfc" / link).exists() for link in links)
