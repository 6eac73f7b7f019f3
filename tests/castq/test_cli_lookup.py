"""`castq lookup`: answers, misses and misuse, as seen by a user and by a program reading the JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from castq.operator_text import parse_attribute, parse_lengths, parse_tensor, read_operators
from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.tensor import TensorSpec

MM = ("--op", "aten.mm.default", "--input")
WEIGHT = ("--input", "5120,768:bf16")


def test_measured_row_is_one_line_with_its_place(castq: Any, demo: Any) -> None:
    # 2*4096*5120*768 flops on 376 TFLOPS are 85.6709 us, and a launch takes 4.
    ran = castq("lookup", "-d", str(demo), *MM, "4096,5120:bf16", *WEIGHT)
    assert ran.code == 0
    assert ran.out.startswith("89.6709 us; MEASURED; kernel MatMulV2; rows MatMulV2.csv:")
    assert ran.out.count("\n") == 1
    assert "SYNTHETIC data" in ran.out


def test_point_between_rows_is_interpolated(castq: Any, demo: Any) -> None:
    # Moved bytes at M = 64 and 128 take 4.8988 and 5.3271 us; halfway plus the launch is 9.1130.
    ran = castq("lookup", "-d", str(demo), *MM, "96,5120:bf16", *WEIGHT, "--json")
    document = json.loads(ran.out)
    assert ran.code == 0
    assert document["answered"] is True
    assert document["source"] == "INTERPOLATED"
    assert document["latency_us"] == pytest.approx(9.1130, abs=1e-4)
    assert document["details"]["interpolation_dim"] == 1
    assert document["database"]["synthetic"] is True
    assert document["operator"]["inputs"][1] == {"shape": [5120, 768], "dtype": "bfloat16", "role": "weight"}


def test_without_interpolation_the_same_point_is_a_miss(castq: Any, demo: Any) -> None:
    ran = castq("lookup", "-d", str(demo), *MM, "96,5120:bf16", *WEIGHT, "--disable-profiling-interpolation")
    assert ran.code == 3
    assert ran.out.startswith("no answer: shape_mismatch")


def test_outside_the_grid_is_a_miss_with_the_measured_range(castq: Any, demo: Any) -> None:
    ran = castq("lookup", "-d", str(demo), *MM, "65536,5120:bf16", *WEIGHT, "--json")
    document = json.loads(ran.out)
    assert ran.code == 3
    assert document["answered"] is False
    assert document["latency_us"] is None
    assert document["reason"] == "outside_axis_boundary"
    assert "measured M 1..8192" in castq("lookup", "-d", str(demo), *MM, "65536,5120:bf16", *WEIGHT).out


def test_explain_shows_rows_of_an_answer(castq: Any, demo: Any) -> None:
    ran = castq("lookup", "-d", str(demo), *MM, "96,5120:bf16", *WEIGHT, "--explain")
    assert "kernel_type: MatMulV2" in ran.out
    rows = [line for line in ran.out.splitlines() if "MatMulV2.csv:" in line and "latency_us=" in line]
    assert len(rows) == 2
    assert max(len(line) for line in ran.out.splitlines()) > 80, "nothing is wrapped when piped"


def test_explain_shows_every_attempt_of_a_miss(castq: Any, demo: Any) -> None:
    ran = castq("lookup", "-d", str(demo), *MM, "65536,5120:bf16", *WEIGHT, "--explain")
    assert ran.code == 3
    for kernel in ("MatMulV2", "MatMulV3", "MatMulCommon"):
        assert kernel in ran.out


def test_unknown_operator_names_the_nearest(castq: Any, demo: Any) -> None:
    ran = castq("lookup", "-d", str(demo), "--op", "aten.mn.default", "--input", "1,2:bf16")
    assert ran.code == 3
    assert "unmapped" in ran.out
    assert "did you mean 'aten.mm.default'?" in ran.out


def test_expert_parallel_size_decides_a_fused_answer(castq: Any, demo: Any) -> None:
    args = (
        "--op",
        "tensor_cast.dispatch_ffn_combine_quant.default",
        "--input=256,7168:bf16@x",
        "--input=256,8:int64@expert_indices",
        "--input=16,7168,4096:int8@gmm1_weight",
        "--input=16,2048,7168:int8@gmm2_weight",
    )
    without = castq("lookup", "-d", str(demo), *args)
    assert (without.code, "ep_size_not_configured" in without.out) == (3, True)
    found = castq("lookup", "-d", str(demo), *args, "--ep-size", "16", "--json")
    # 1.5*16*7168*4096 weight bytes plus 3*256*8*7168 routed bytes at 1.6 TiB/s are 425.5772 us; the launch is 55.
    assert found.code == 0
    assert json.loads(found.out)["latency_us"] == pytest.approx(480.5772, abs=1e-3)
    assert castq("lookup", "-d", str(demo), *args, "--ep-size", "8").code == 3


def test_request_lengths_reach_attention(castq: Any, demo: Any) -> None:
    args = (
        "--op",
        "tensor_cast.attention.default",
        "--input=16,8,128:bf16@query",
        "--input=12307,128,1,128:bf16@key",
        "--input=12307,128,1,128:bf16@value",
        "--input=16:int64@seq_lens",
        "--input=16:int64@query_lens",
        "--query-lens",
        "16x1",
    )
    measured = castq("lookup", "-d", str(demo), *args, "--kv-lens", "16x4096")
    assert measured.code == 0
    assert "FusedInferAttentionScore" in measured.out
    between = castq("lookup", "-d", str(demo), *args, "--kv-lens", "16x5000", "--json")
    assert json.loads(between.out)["details"]["axes"] == ["seq"]


def test_collective_takes_the_declared_device(castq: Any, demo: Any) -> None:
    ran = castq(
        "lookup",
        "-d",
        str(demo),
        "--op=tensor_cast.all_reduce.default",
        "--input=512,1024:bf16",
        "--attr=rank_group=0,1,2,3,4,5,6,7",
        "--json",
    )
    document = json.loads(ran.out)
    # 6 + 1.5*log2(8) + 1.75 * 1 MiB / 150 GB/s
    assert document["latency_us"] == pytest.approx(10.5 + 1.75 * 2**20 / 150e3, abs=1e-4)
    assert document["details"]["topology_tier"] == 1


def test_operators_from_a_file_and_from_standard_input(castq: Any, demo: Any, tmp_path: Path) -> None:
    operator = {
        "op": "tensor_cast.swiglu.default",
        "inputs": [{"shape": [512, 2048], "dtype": "bfloat16"}, {"shape": [512, 2048], "dtype": "bfloat16"}],
        "outputs": [{"shape": [512, 2048], "dtype": "bfloat16"}],
    }
    missing = {**operator, "op": "tensor_cast.gelu.default"}
    path = tmp_path / "operators.json"
    path.write_text(json.dumps([operator, missing]))
    table = castq("lookup", "-d", str(demo), "--operator", str(path))
    assert table.code == 3
    assert "SwiGlu.csv:" in table.out
    assert "unmapped" in table.out
    listed = castq("lookup", "-d", str(demo), "--operator", str(path), "--json")
    assert [item["answered"] for item in json.loads(listed.out)] == [True, False]
    single = castq("lookup", "-d", str(demo), "--operator", "-", stdin=json.dumps(operator))
    assert single.code == 0
    assert single.out.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "name an operator with --op"),
        (("--op", "aten.mm.default", "--input", "4096x5120:bf16"), "is not a comma-separated list of integers"),
        (("--op", "aten.mm.default", "--input", "4096,5120"), "expected SHAPE:DTYPE"),
        (("--op", "aten.mm.default", "--input", "1,2:bf17"), "did you mean 'bf16'?"),
        (("--op", "aten.mm.default", "--attr", "x"), "expected NAME=VALUE"),
        (("--op", "aten.mm.default", "--kv-lens", "4k"), "expected lengths such as"),
        (("--op", "aten.mm.default", "--phase", "warmup"), "expected one of prefill, decode, mixed"),
        (("--op", "aten.mm.default", "--device", "ATLAS"), "unknown device 'ATLAS'"),
        (("--op", "aten.mm.default", "--tp-size", "0"), "tensor_parallel_size must be an integer >= 1"),
        (("--op", "aten.mm.default", "--tp-size", "1_6"), "'1_6' is not a whole number"),
        (("--op", "aten.mm.default", "--ep-size", "\uff11\uff16"), "is not a whole number"),
        (("--op", "aten.mm.default", "--input", "1_6,8:bf16"), "not a comma-separated list of integers"),
        (("--op", "aten.mm.default", "--input", "\u0664,8:bf16"), "not a comma-separated list of integers"),
        (("--op", "aten.mm.default", "--kv-lens", "\uff11\uff16"), "expected lengths such as"),
        (("--op", "aten.mm.default", "--operator", "x.json"), "--operator holds the whole operator"),
        (("--operator", "no-such-file.json"), "cannot be read"),
    ],
)
def test_misuse_is_one_line_and_exit_2(castq: Any, demo: Any, args: Any, said: Any) -> None:
    ran = castq("lookup", "-d", str(demo), *args)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""


NINES = "9" * 5000


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--kv-lens", NINES), "--kv-lens: '999"),
        (("--kv-lens", f"{NINES}x1"), "--kv-lens: '999"),
        (("--query-lens", "9223372036854775808"), "is larger than 2**63 - 1"),
        (("--input", f"{NINES},8:bf16"), "--input 1 '999"),
        (("--block-table", f"1,{NINES}"), "--block-table: '999"),
        (("--attr", f"a={NINES}"), "--attr a: '999"),
        (("--attr", "a=1e999"), "is too large a number"),
        (("--kv-lens", "４"), "expected lengths such as"),
        (("--input", "４,8:bf16"), "is not a comma-separated list of integers"),
        (("--input", "1_0,8:bf16"), "is not a comma-separated list of integers"),
        (("--tp-size", NINES), "--tp-size"),
    ],
)
def test_numbers_of_any_length_are_a_short_error(castq: Any, demo: Any, args: Any, said: Any) -> None:
    ran = castq("lookup", "-d", str(demo), "--op", "aten.mm.default", *args)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert max(map(len, ran.err.splitlines())) < 300


JSON_OPERATOR = '{"op": "aten.mm.default", "inputs": [{"shape": [96, 256], "dtype": "bf16"}]%s}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "too many nested values"),
        (JSON_OPERATOR % ', "attrs": {"a": NaN}', "NaN is no JSON number"),
        (JSON_OPERATOR % ', "attrs": {"a": 1e999}', "is too large"),
        (JSON_OPERATOR % ', "op": "aten.zzz.default"', "the key 'op' stands twice"),
        (JSON_OPERATOR % ', "attrs": {"a": "\\ud800"}', "half of a surrogate pair"),
        (JSON_OPERATOR % f', "attrs": {{"a": {"9" * 6000}}}', "(6000 characters) is too large"),
        (JSON_OPERATOR % f', "requests": {{"kv_lens": [{2**63}]}}', "a length is larger than 2**63 - 1"),
        (JSON_OPERATOR % f', "outputs": [{{"shape": [{2**63}], "dtype": "bf16"}}]', "more than 2**63 - 1 elements"),
    ],
)
def test_json_that_two_readers_could_take_differently_is_one_line_and_exit_2(
    castq: Any, demo: Any, text: Any, said: Any
) -> None:
    ran = castq("lookup", "-d", str(demo), "--operator", "-", stdin=text)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert len(ran.err) < 200


def test_infinite_attributes_are_valid_json(castq: Any, demo: Any) -> None:
    ran = castq("lookup", "-d", str(demo), *MM, "4,8:bf16", "--attr", "limit=inf", "--attr", "text=nan", "--json")
    operator = json.loads(ran.out, parse_constant=pytest.fail)["operator"]
    assert operator["attrs"] == {"limit": {"float": "inf"}, "text": "nan"}
    again = castq("lookup", "-d", str(demo), "--operator", "-", "--json", stdin=json.dumps(operator))
    assert json.loads(again.out)["operator"] == operator


def test_many_operators_show_how_far_they_are(
    castq: Any, demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import contextmanager

    from castq.commands import show

    told: list[tuple[str, float, float]] = []

    @contextmanager
    def watched(_: str) -> Any:
        yield lambda *step: told.append(step)

    monkeypatch.setattr(show, "progress", watched)
    path = tmp_path / "operators.json"
    path.write_text(json.dumps([{"op": "aten.mm.default"}] * 3))
    castq("lookup", "-d", str(demo), "--operator", str(path))
    assert told == [("aten.mm.default", done, 3) for done in (1, 2, 3)]


def test_a_folder_without_database_is_misuse(castq: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here")
    ran = castq("lookup", "-d", str(tmp_path), "--op", "aten.mm.default")
    assert (ran.code, ran.err) == (
        2,
        f"castq: {tmp_path}: holds no database; expected op_mapping.yaml in it or below it, found notes.txt\n",
    )


def test_interrupt_exits_130(castq: Any, demo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("castq.ask.ask", interrupted)
    assert castq("lookup", "-d", str(demo), "--op", "aten.mm.default").code == 130


def test_version_and_help(castq: Any) -> None:
    assert castq("--version").out == "castq 0.1.0\n"
    for command in (("lookup",), ("db", "list"), ("db", "check"), ("db", "demo")):
        assert f"Example: castq {' '.join(command)}" in castq(*command, "--help").out


def test_importing_the_program_is_light() -> None:
    check = "import sys, castq.cli; print([m for m in ('numpy', 'rich', 'scipy', 'yaml') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_tensor_text() -> None:
    assert parse_tensor("4096,5120:bf16") == TensorSpec((4096, 5120), "bfloat16")
    assert parse_tensor("8,2,16,32:int8:fractal_nz@weight") == TensorSpec(
        (8, 2, 16, 32), "int8", "FRACTAL_NZ", "weight"
    )
    assert parse_tensor("():fp32") == TensorSpec((), "float32")


@pytest.mark.parametrize(
    ("text", "lengths"), [("1,1,1", (1, 1, 1)), ("3x4096", (4096,) * 3), ("2x1,5", (1, 1, 5)), ("0", (0,))]
)
def test_length_text(text: Any, lengths: Any) -> None:
    assert parse_lengths(text, "--kv-lens") == lengths


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n=2048", 2048),
        ("eps=1e-6", 1e-6),
        ("flag=true", True),
        ("dims=-1,", (-1,)),
        ("ranks=0,1", (0, 1)),
        ("x=none", None),
        ("dtype=int8", "int8"),
    ],
)
def test_attribute_text(text: Any, value: Any) -> None:
    assert parse_attribute(text) == (text.partition("=")[0], value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "operators.json:1: not valid JSON"),
        ("[]", "the list of operators is empty"),
        ('[{"op": "a.b.c"}, {"inputs": []}]', "operator 2: operator JSON: field 'op' must be a string"),
    ],
)
def test_operator_file_errors_name_the_place(tmp_path: Path, text: Any, said: Any) -> None:
    path = tmp_path / "operators.json"
    path.write_text(text)
    with pytest.raises(InvalidValueError, match=said.replace("(", r"\(")):
        read_operators(str(path))


def test_a_folder_without_a_mapping_is_said(castq: Any, tmp_path: Path) -> None:
    (tmp_path / "MatMulV2.csv").write_text("Input Shapes,Input Data Types,Duration(us)\n")
    ran = castq("lookup", "-d", str(tmp_path), "--op", "aten.mm.default", "--input", "4,8:bf16")
    assert ran.code == 3
    assert f"no op_mapping.yaml in {tmp_path.name}" in ran.out
