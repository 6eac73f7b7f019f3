"""A mapping file that cannot be used is refused with file, line and field."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from support import base_source, mm, row, source, write_database, write_table
from tensor_cast import open_database
from tensor_cast.errors import CastqError, DataFileError
from tensor_cast.performance_model.profiling_database.columns.facts import FAMILIES
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import (
    FACT_FAMILIES,
    OpMapping,
    load_op_mapping,
)
from two_products import BF16, LFS, latency


def refused(folder: Path, text: str | bytes) -> DataFileError:
    path = folder / "op_mapping.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataFileError) as caught:
        open_database(folder)
    assert isinstance(caught.value, CastqError)
    assert caught.value.path == str(path)
    return caught.value


def loaded(folder: Path, text: str) -> OpMapping:
    path = folder / "op_mapping.yaml"
    path.write_text(text)
    return load_op_mapping(path)


LAUGHS = "a0: &a0 [ha, ha]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
BAD_YAML: dict[str, tuple[Any, int | None, str]] = {
    "lfs_pointer": (LFS, None, "is a Git-LFS pointer, not data: fetch it with 'git lfs pull'"),
    "duplicate_key": ("version: a\ndevice: b\nversion: c\n", 3, "op_mapping.yaml:3: duplicate key 'version'"),
    "duplicate_key-operator": (
        "operator_mappings:\n  aten.mm.default: {kernel_type: A}\n  aten.mm.default: {kernel_type: B}\n",
        3,
        "duplicate key 'aten.mm.default'",
    ),
    "yaml_tag": ("version: a\nnotes: !!python/object/apply:os.getcwd []\n", 2, "python/object/apply:os.getcwd"),
    "yaml_tag-custom": ("version: a\nnotes: !custom x\n", 2, "tag '!custom' is not allowed"),
    "yaml_tag-collection": ("version: !!seq x\n", 1, "tag 'tag:yaml.org,2002:seq' is not allowed"),
    "yaml_value": ("version: !!bool maybe\n", 1, "cannot read 'maybe' as bool"),
    "yaml_value-date": ("version: 2026-13-45\n", 1, "cannot read '2026-13-45' as timestamp"),
    "yaml_value-time": ("version: !!timestamp soon\n", 1, "cannot read 'soon' as timestamp"),
    "yaml_value-int": ("version: a\nnotes: !!int ''\n", 2, "cannot read '' as int"),
    "too_large": (LAUGHS, None, "too many nested or aliased values"),
    "too_large-self": ("&a [*a, *a]\n", 1, "too many nested or aliased values"),
    "too_large-deep": ("[" * 2000, None, "too many nested values"),
    "encoding": ("version: größe\n".encode("latin-1"), None, "not UTF-8 text (byte 11)"),
    "yaml_syntax": ("version: a\nnotes:\n\t- b\n", 3, "found character '\\t' that cannot start any token"),
    "yaml_syntax-two": ("a: 1\n---\nb: 2\n", 2, "but found another document"),
    "yaml_syntax-key": ("? [a]\n: 1\n", 1, "a mapping key must be a scalar"),
    "invalid": ("- a\n- b\n", None, "expected a mapping at the top, got list"),
}


@pytest.mark.parametrize("name", BAD_YAML)
def test_a_mapping_that_is_not_plain_yaml_is_refused(tmp_path: Path, name: str) -> None:
    text, line, message = BAD_YAML[name]
    error = refused(tmp_path, text)
    assert error.code == name.partition("-")[0]
    assert message in str(error)
    assert line is None or error.line == line


def test_a_mapping_larger_than_any_mapping_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "op_mapping.yaml"
    path.write_text("version: a\n")
    os.truncate(path, 1 << 30)
    with pytest.raises(DataFileError, match="larger than 16777216 bytes") as caught:
        open_database(tmp_path)
    assert caught.value.code == "too_large"


def test_a_mapping_may_have_a_mark_and_windows_line_ends(tmp_path: Path) -> None:
    write_table(tmp_path, "MatMulV2", [row("4,8;8,3", BF16, 1.5)])
    text = b"\xef\xbb\xbfversion: a\r\noperator_mappings:\r\n  aten.mm.default:\r\n    kernel_type: MatMulV2\r\n"
    (tmp_path / "op_mapping.yaml").write_bytes(text)
    assert latency(base_source(tmp_path).query(mm(4, 8, 3))) == 1.5


WRONG_FIELDS = [
    ("kernel_type", "[A]", "expected str, got list ['A']"),
    ("query_mode", "3", "expected str, got int 3"),
    ("compute_subcategory", "{a: 1}", "expected str, got dict {'a': 1}"),
    ("accepted_miss", "true", "expected str, got bool True"),
    ("category", "2026-01-01", "expected str, got date"),
    ("quant_mode", "1.5", "expected str, got float 1.5"),
    ("alternate_kernel_types", "MatMulV3", "expected list, got str 'MatMulV3'"),
    ("sub_kernels", "{a: 1}", "expected list, got dict"),
    ("expected_input_formats", "ND", "expected list, got str 'ND'"),
    ("tc_input_count", "true", "expected int, got bool True"),
    ("tc_input_count", "'2'", "expected int, got str '2'"),
    ("tc_input_count", "2.0", "expected int, got float 2.0"),
    ("tc_input_count", "0", "must be at least 1, got 0"),
    ("tc_input_count", "-1", "must be at least 1, got -1"),
    ("zero_cost", "1", "expected bool, got int 1"),
    ("composite", "'true'", "expected bool, got str 'true'"),
    ("require_all_sub_kernels", "[]", "expected bool, got list []"),
    ("decomposer", "1", "expected bool or str, got int 1"),
    ("decomposer_options", "[a]", "expected dict, got list ['a']"),
    ("facts", "dense", "expected dict, got str 'dense'"),
    ("notes", "1", "expected str or list, got int 1"),
    ("category", "comunication", "expected one of compute, communication; got 'comunication' (did you mean 'communi"),
    ("tc_input_count", "1_6", "cannot read '1_6' as int: write a decimal number, or quote it as text"),
    ("tc_input_count", "010", "cannot read '010' as int"),
    ("tc_input_count", "1:30", "cannot read '1:30' as int"),
]


@pytest.mark.parametrize(("field", "value", "message"), WRONG_FIELDS)
def test_a_wrong_type_in_an_entry_names_file_line_and_field(
    tmp_path: Path, field: str, value: str, message: str
) -> None:
    text = f"version: a\noperator_mappings:\n  aten.mm.default:\n    api_path: x\n    {field}: {value}\n"
    error = refused(tmp_path, text)
    assert error.line == 5
    place = "" if message.startswith("cannot read") else f"operator_mappings.aten.mm.default.{field}: "
    assert f"op_mapping.yaml:5: {place}{message}" in str(error)


WRONG_POLICIES = [
    ("max_interpolation_dim", "7", "must be 0 to 3, got 7"),
    ("max_interpolation_dim", "-1", "must be 0 to 3, got -1"),
    ("max_interpolation_dim", "true", "expected int, got bool True"),
    ("axis_transform", "[sqrt]", "expected str, got list ['sqrt']"),
    ("frontier_guard", "1", "expected bool, got int 1"),
    ("generic_compute", "axis_0", "expected dict, got str 'axis_0'"),
    ("method", "simplx", "expected one of simplex, bracket_blend; got 'simplx' (did you mean 'simplex'?)"),
    ("axis_transform", "sqrt_sec", "expected one of sqrt, sqrt_seq, linear, none; got 'sqrt_sec' (did you mean 'sqrt_"),
    ("shape_transform", "linar", "expected one of sqrt, sqrt_seq, linear, none; got 'linar' (did you mean 'linear'?)"),
    ("axis_order", "widest", "expected one of listed, tightest; got 'widest'"),
]


@pytest.mark.parametrize(("field", "value", "message"), WRONG_POLICIES)
def test_a_wrong_policy_names_file_line_and_field(tmp_path: Path, field: str, value: str, message: str) -> None:
    text = f"interpolation_policy:\n  kernel_overrides:\n    MatMulV2:\n      quant_mode: a\n      {field}: {value}\n"
    error = refused(tmp_path, text)
    assert f"op_mapping.yaml:5: interpolation_policy.kernel_overrides.MatMulV2.{field}: {message}" in str(error)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("operator_mappings: [a]\n", ":1: operator_mappings: expected a mapping, got list"),
        ("operator_mappings:\n  aten.mm.default: MatMulV2\n", ":2: operator_mappings.aten.mm.default: expected a map"),
        ("version: [1]\n", ":1: version: expected text, got list"),
        ("communication_data_ref: {a: 1}\n", ":1: communication_data_ref: expected text, got dict"),
        ("interpolation_policy: 3\n", ":1: interpolation_policy: expected a mapping, got int"),
        ("interpolation_policy:\n  kernel_overrides: [a]\n", ":2: interpolation_policy.kernel_overrides: expected"),
        (
            "latency_policy:\n  kernel_overrides: 3\n",
            ":2: latency_policy.kernel_overrides: expected a mapping",
        ),
        ("operator_mappings:\n  a.b.c:\n    sub_kernels: [A, 3]\n", ":3: operator_mappings.a.b.c.sub_kernels.1: expec"),
        ("tables: [a]\n", ":1: tables: expected a mapping, got list"),
        (
            "interpolation_policy:\n  kernel_overrides:\n    Index:\n      generic_compute:\n        axis: axis_1\n",
            ":5: interpolation_policy.kernel_overrides.Index.generic_compute.axis: expected one of axis_0, "
            "output_numel; got 'axis_1' (did you mean 'axis_0'?)",
        ),
    ],
)
def test_a_section_of_the_wrong_type_is_located(tmp_path: Path, text: str, message: str) -> None:
    assert f"op_mapping.yaml{message}" in str(refused(tmp_path, text))


def test_an_unknown_family_is_located(tmp_path: Path) -> None:
    text = "operator_mappings:\n  aten.mm.default:\n    kernel_type: A\n    facts:\n      family: matmull\n"
    message = ":5: operator_mappings.aten.mm.default.facts.family: expected one of attention, experts"
    assert f"op_mapping.yaml{message}" in str(refused(tmp_path, text))
    assert tuple(sorted(FAMILIES)) == FACT_FAMILIES


@pytest.mark.parametrize(
    ("field", "value", "close"),
    [("query_mode", "elementwize", "elementwise"), ("compute_subcategory", "compute_scales", "compute_scale")],
)
def test_a_selector_outside_its_set_is_reported_and_misses_with_the_nearest(
    tmp_path: Path, field: str, value: str, close: str
) -> None:
    """Decision 002.12: fail closed; a mapping may be newer than the program, so it still loads."""
    folder = write_database(tmp_path, {}, {"aten.mm.default": {"kernel_type": "MatMulV2", field: value}})
    data = source(folder)
    said = f"(did you mean {close!r}?)"
    assert data.database.mapping.unknown_keys == (f"operator_mappings.aten.mm.default.{field}: {value} {said}",)
    answer = data.query(mm(4, 8, 3))
    assert f"{field}_unknown:{value}" in str(answer)
    assert said in str(answer)


def test_unknown_keys_are_kept_and_reported(tmp_path: Path) -> None:
    mapping = loaded(
        tmp_path,
        "colour: red\n"
        "operator_mappings:\n"
        "  aten.mm.default: {kernel_type: MatMulV2, kernel_typo: B, nested: {a: 1}}\n"
        "interpolation_policy:\n"
        "  default_dim: 2\n"
        "  kernel_overrides:\n"
        "    MatMulV2: {max_dim: 2, generic_compute: {axes: axis_0}}\n"
        "latency_policy:\n"
        "  kernel_overrides: {ScatterNdUpdate: {prefer_profiling_rows: true}}\n",
    )
    assert mapping.unknown_keys == (
        "colour",
        "operator_mappings.aten.mm.default.kernel_typo",
        "operator_mappings.aten.mm.default.nested",
        "interpolation_policy.default_dim",
        "interpolation_policy.kernel_overrides.MatMulV2.max_dim",
        "interpolation_policy.kernel_overrides.MatMulV2.generic_compute.axes",
    )
    assert dict(mapping.operators["aten.mm.default"].extra) == {"kernel_typo": "B", "nested": {"a": 1}}
    assert mapping.operators["aten.mm.default"].kernels == ("MatMulV2",)
    assert mapping.inert_policies == ("latency_policy.ScatterNdUpdate",)


@pytest.mark.parametrize("reference", ["../outside.yaml", "/etc/hosts", "sub/../../outside.yaml"])
def test_extends_cannot_leave_the_folder(tmp_path: Path, reference: str) -> None:
    (tmp_path / "outside.yaml").write_text("operator_mappings: {aten.mm.default: {kernel_type: Outside}}\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    error = refused(inside, f"version: a\nextends: {reference}\n")
    assert f"op_mapping.yaml:2: extends: {reference!r} lies outside the mapping's own folder" in str(error)


def test_extends_takes_what_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "device: x\noperator_mappings: {aten.mm.default: {kernel_type: A}, aten.bmm.default: {kernel_type: B}}\n"
    )
    mapping = loaded(tmp_path, "extends: base.yaml\noperator_mappings: {aten.mm.default: {kernel_type: C}}\n")
    kernels = {name: entry.kernel_type for name, entry in mapping.operators.items()}
    assert kernels == {"aten.mm.default": "C", "aten.bmm.default": "B"}
    assert mapping.header["device"] == "x"


def test_extends_in_a_circle_or_into_nothing_is_an_error(tmp_path: Path) -> None:
    assert "extends: 'op_mapping.yaml' leads back to this file" in str(refused(tmp_path, "extends: op_mapping.yaml\n"))
    (tmp_path / "a.yaml").write_text("extends: op_mapping.yaml\n")
    (tmp_path / "op_mapping.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(DataFileError, match=r"a\.yaml:1: extends: 'op_mapping\.yaml' leads back"):
        open_database(tmp_path)
    (tmp_path / "op_mapping.yaml").write_text("extends: absent.yaml\n")
    with pytest.raises(DataFileError, match="cannot be read: No such file") as caught:
        open_database(tmp_path)
    assert caught.value.code == "unreadable"
