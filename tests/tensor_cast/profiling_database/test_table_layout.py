"""The `tables` section of a mapping: what a layout reads, and errors that point at the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensor_cast.errors import DataFileError
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import load_op_mapping
from tensor_cast.performance_model.profiling_database.mapping.table_layout import TableLayout

LEAST = "tables:\n  K:\n    files: [a/b]\n    axes: {M: m}\n"


def layout(folder: Path, text: str) -> TableLayout:
    path = folder / "op_mapping.yaml"
    path.write_text(text)
    return load_op_mapping(path).layouts["K"]


def test_the_least_layout(tmp_path: Path) -> None:
    read = layout(tmp_path, LEAST)
    assert (read.kernel, read.files, dict(read.axes)) == ("K", ("a/b",), {"M": ("m",)})
    assert read.columns == read.required == ("m",)
    assert (read.fact_names, read.variant, read.add) == ((), None, None)


def test_every_column_is_named_once_and_defaults_and_metadata_are_not_demanded(tmp_path: Path) -> None:
    text = (
        LEAST.replace("{M: m}", "{M: m, seq: [isl, step]}")
        + "    regime: {quant: dtype, window: window_size}\n"
        + "    derive: {kv: kv_head_class, phase: phase_of_isl}\n"
        + "    where: {beam: 1, mode: [a, b]}\n"
        + "    defaults: {window_size: 0}\n"
        + "    metadata: [capacity]\n"
        + "    variant: source\n"
        + "    constants: {x: 1}\n"
        + "    values: {quant: {fp8_e4m3: fp8}}\n"
    )
    read = layout(tmp_path, text)
    heads = ("num_heads", "num_key_value_heads")
    assert read.columns == (
        *("m", "isl", "step", "dtype", "window_size", "beam", "mode", "capacity"),
        *(*heads, "source"),
    )
    assert read.required == ("m", "isl", "step", "dtype", "beam", "mode", *heads, "source")
    assert read.fact_names == ("quant", "window", "kv", "phase")
    assert dict(read.where) == {"beam": (1,), "mode": ("a", "b")}
    assert dict(read.values["quant"]) == {"fp8_e4m3": "fp8"}


def test_what_a_question_need_not_state(tmp_path: Path) -> None:
    read = layout(tmp_path, LEAST + "    assumed: {topk: 2048, width: [512, 576], hidden: {model: {a: 7168}}}\n")
    assert read.assumed == {"topk": (2048,), "width": (512, 576), "hidden": {"model": {"a": (7168,)}}}


def test_unknown_fields_are_reported(tmp_path: Path) -> None:
    (tmp_path / "op_mapping.yaml").write_text(LEAST + "    colour: red\n")
    assert load_op_mapping(tmp_path / "op_mapping.yaml").unknown_keys == ("tables.K.colour",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tables:\n  K: [a]\n", ":2: tables.K: expected a mapping, got list"),
        ("tables:\n  K:\n    axes: {M: m}\n", ":2: tables.K.files: expected a list of <family>/<table> names"),
        (LEAST.replace("[a/b]", "a/b"), ":3: tables.K.files: expected a list of <family>/<table> names"),
        (LEAST.replace("[a/b]", "[]"), ":3: tables.K.files: expected a list of <family>/<table> names"),
        (LEAST.replace("[a/b]", "[3]"), ":3: tables.K.files: expected a list of <family>/<table> names"),
        (LEAST.replace("{M: m}", "{}"), ":4: tables.K.axes: a table needs at least one axis"),
        (LEAST.replace("{M: m}", "[m]"), ":4: tables.K.axes: expected a mapping, got list"),
        (LEAST.replace("{M: m}", "{M: 3}"), ":4: tables.K.axes.M: expected a column name or a list of them, got 3"),
        (LEAST.replace("{M: m}", "{M: []}"), ":4: tables.K.axes.M: expected a column name or a list of them, got []"),
        (LEAST + "    regime: dtype\n", ":5: tables.K.regime: expected a mapping, got str"),
        (LEAST + "    constants: 3\n", ":5: tables.K.constants: expected a mapping, got int"),
        (LEAST + "    where: [a]\n", ":5: tables.K.where: expected a mapping, got list"),
        (LEAST + "    defaults: [a]\n", ":5: tables.K.defaults: expected a mapping, got list"),
        (LEAST + "    values: {quant: fp8}\n", ":5: tables.K.values.quant: expected a mapping, got str"),
        (LEAST + "    assumed: 3\n", ":5: tables.K.assumed: expected a mapping, got int"),
        (
            LEAST + "    assumed: {h: {}}\n",
            ":5: tables.K.assumed.h: expected one fact that the value depends on, got none",
        ),
        (LEAST + "    variant: [source]\n", ":5: tables.K.variant: expected text, got list"),
        (LEAST + "    add: 3\n", ":5: tables.K.add: expected text, got int"),
        (LEAST + "    metadata: 3\n", ":5: tables.K.metadata: expected a list of column names, got 3"),
        (LEAST + "    metadata: capacity\n", ":5: tables.K.metadata: expected a list of column names, got 'capacity'"),
        (LEAST + "    metadata: [3]\n", ":5: tables.K.metadata: expected a list of column names, got [3]"),
    ],
)
def test_a_wrong_type_names_file_line_and_field(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataFileError) as caught:
        layout(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'op_mapping.yaml'}{message}"
