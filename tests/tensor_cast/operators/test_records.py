"""From a tracer's record or from JSON to the same leaf descriptor."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import base_source, hit, row, write_database
from tensor_cast import LeafOp, Miss, QueryResult, Requests, TensorSpec
from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import Phase
from tensor_cast.operators.records import OperatorRecord, as_leaf, leaf_from_json, leaf_from_record, leaf_to_json
from tensor_cast.operators.signatures import known_operators


@dataclass
class Tensor:
    """What a tracer's tensor offers: shape, dtype and, where it has any, values."""

    shape: tuple[int, ...]
    dtype: str = "torch.bfloat16"
    values: Any = None
    is_meta: bool = False

    def tolist(self) -> Any:
        if self.values is None:
            raise RuntimeError("no values")
        return self.values


@dataclass
class Record:
    func: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    out: Any = None


def lengths(*values: int) -> Tensor:
    return Tensor((len(values),), "torch.int32", list(values))


def attention(seq_lens: Tensor, query_lens: Tensor | None) -> Record:
    query, cache = Tensor((16, 512)), Tensor((64, 128, 1, 128))
    start, table = Tensor((17,), "torch.int32", is_meta=True), Tensor((16, 33), "torch.int32", is_meta=True)
    args = (query, cache, cache, None, table, start, seq_lens, query_lens)
    return Record("tensor_cast.attention.default", args, {}, Tensor((16, 512)))


# --- records ----------------------------------------------------------------------------------------------------------


def test_a_record_becomes_a_leaf_with_roles() -> None:
    leaf = leaf_from_record(attention(lengths(*[4096] * 16), lengths(*[1] * 16)))
    assert leaf.name == "tensor_cast.attention.default"
    assert [(spec.role, spec.shape, spec.dtype) for spec in leaf.inputs] == [
        ("query", (16, 512), "bfloat16"),
        ("key", (64, 128, 1, 128), "bfloat16"),
        ("value", (64, 128, 1, 128), "bfloat16"),
        ("block_table", (16, 33), "int32"),
        ("query_start_loc", (17,), "int32"),
        ("seq_lens", (16,), "int32"),
        ("query_lens", (16,), "int32"),
    ]
    assert leaf.outputs == (TensorSpec((16, 512), "bfloat16"),)
    assert leaf.requests == Requests((1,) * 16, (4096,) * 16, None, (16, 33))
    assert leaf.requests is not None
    assert leaf.requests.phase == "decode"


def test_the_library_prefix_is_dropped() -> None:
    record = Record("torch.ops.aten.mm.default", (Tensor((4, 8)), Tensor((8, 3))), {}, Tensor((4, 3)))
    assert as_leaf(record) == LeafOp.build("aten.mm.default", [((4, 8), "bf16"), ((8, 3), "bf16")], [((4, 3), "bf16")])
    assert isinstance(record, OperatorRecord)


def test_a_leaf_is_its_own_leaf_and_anything_else_is_refused() -> None:
    leaf = LeafOp("aten.mm.default", ())
    assert as_leaf(leaf) is leaf
    with pytest.raises(InvalidValueError, match=r"expected a LeafOp or a record with func, .*; got str"):
        as_leaf("aten.mm.default")  # type: ignore[arg-type]


def test_keyword_tensors_take_the_operators_own_order() -> None:
    x, weight = Tensor((4, 8)), Tensor((8, 3))
    by_place = leaf_from_record(Record("aten.mm.default", (x, weight)))
    by_name = leaf_from_record(Record("aten.mm.default", (), {"weight": weight, "x": x}))
    assert by_place == by_name
    assert [spec.shape for spec in by_name.inputs] == [(4, 8), (8, 3)]


def test_the_tensors_of_an_unlisted_operator_are_all_kept_but_its_destination() -> None:
    record = Record("aten.unheard_of.default", (Tensor((4, 8)), 3), {"weight": Tensor((8, 3)), "out": Tensor((4, 3))})
    leaf = leaf_from_record(record)
    assert [(spec.role, spec.shape) for spec in leaf.inputs] == [("", (4, 8)), ("", (8, 3))]
    assert leaf.attributes == {"arg1": 3}


def test_list_arguments_and_several_outputs_are_unpacked() -> None:
    experts = [Tensor((16, 32), "torch.int8")] * 3
    down = [Tensor((16, 16), "torch.int8")] * 3
    args = (Tensor((4, 16)), Tensor((4, 2), "torch.int64"), experts, None, None, None, None, down)
    record = Record(
        "tensor_cast.dispatch_ffn_combine_quant.default", args, {"rank_group": [0, 1]}, (Tensor((4, 2, 16)),)
    )
    leaf = leaf_from_record(record)
    assert [spec.role for spec in leaf.inputs] == ["x", "expert_indices", *["gmm1_weight"] * 3, *["gmm2_weight"] * 3]
    assert leaf.attributes == {"rank_group": (0, 1)}
    assert [spec.shape for spec in leaf.outputs] == [(4, 2, 16)]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (2048, 2048),
        (1e-6, 1e-6),
        (True, True),
        ("neox", "neox"),
        ([-1], (-1,)),
        ([], ()),
        (("a", "b"), ("a", "b")),
    ],
)
def test_attributes_are_plain_values(value: Any, kept: Any) -> None:
    leaf = leaf_from_record(Record("aten.unheard_of.default", (), {"option": value}))
    assert leaf.attrs == (("option", kept),)


def test_a_dtype_argument_is_text_and_none_is_absent() -> None:
    class Dtype:
        def __str__(self) -> str:
            return "torch.int8"

    record = Record("tensor_cast.quantize.default", (Tensor((4,)), Tensor(()), None, Dtype()), {"axis": None})
    assert leaf_from_record(record).attributes == {"out_dtype": "int8"}


@pytest.mark.parametrize(
    "vector",
    [
        Tensor((2,), "torch.int32", [7, 9], is_meta=True),
        Tensor((2,), "torch.int32"),
        Tensor((1, 2), "torch.int32", [[7, 9]]),
        Tensor((), "torch.int32", 7),
        Tensor((2,), "torch.int32", ["a", "b"]),
    ],
    ids=["meta", "no-values", "matrix", "scalar", "text"],
)
def test_lengths_that_cannot_be_read_are_unknown(vector: Tensor) -> None:
    leaf = leaf_from_record(attention(vector, lengths(1, 1)))
    assert leaf.requests is not None
    assert (leaf.requests.kv_lens, leaf.requests.query_lens) == (None, (1, 1))
    assert leaf.requests.phase is None


def test_vectors_of_two_lengths_are_both_unknown() -> None:
    leaf = leaf_from_record(attention(lengths(7, 9), lengths(1)))
    assert leaf.requests == Requests(None, None, None, (16, 33))


def test_the_layers_phase_reaches_the_requests() -> None:
    record = Record("aten.unheard_of.default", (Tensor((4,)),), {"phase": "decode"})
    assert leaf_from_record(record).requests == Requests(explicit_phase="decode")
    assert (
        leaf_from_record(Record("aten.unheard_of.default", (Tensor((4,)),), {"phase": "soon"})).requests == Requests()
    )


def test_a_dtype_nobody_knows_keeps_its_name() -> None:
    """Decision 002.28: a tracer's dtype is data; without a name in a database it is a miss, not an error."""
    leaf = leaf_from_record(Record("aten.mm.default", (Tensor((4, 8), "torch.qfloat7"),)))
    assert leaf.tensor_dtypes == ("qfloat7",)


# --- what a lookup makes of them --------------------------------------------------------------------------------------

OPS = {
    "aten.mm.default": {"kernel_type": "MatMulV2"},
    "tensor_cast.attention.default": {"kernel_type": "FusedInferAttentionScore", "query_mode": "attention_special"},
}


def database(folder: Path) -> Path:
    fused = row("16,4,128;64,128,1,128", "DT_BF16;DT_BF16", 58.2, **{"Runtime avg_seq_len": "4096"})
    tables = {"MatMulV2": [row("4,8;8,3", "DT_BF16;DT_BF16", 1.5)], "FusedInferAttentionScore": [fused]}
    return write_database(folder, tables, OPS)


def test_lengths_without_values_refuse_only_what_needs_them(tmp_path: Path) -> None:
    base = base_source(database(tmp_path))
    known = base.query(attention(lengths(*[4096] * 16), lengths(*[1] * 16)))
    assert isinstance(known, QueryResult)
    assert known.latency_us == 58.2
    unknown = base.query(attention(Tensor((16,), "torch.int32", is_meta=True), None))
    assert isinstance(unknown, Miss)
    assert unknown.code == "invalid_seq_lens"
    without = Record("tensor_cast.attention.default", attention(lengths(1), None).args[:6])
    missing = base.query(without)
    assert isinstance(missing, Miss)
    assert missing.code == "missing_seq_lens"
    meta = Record("aten.mm.default", (Tensor((4, 8), is_meta=True), Tensor((8, 3), is_meta=True)))
    plain = base.query(meta)
    assert isinstance(plain, QueryResult)
    assert plain.latency_us == 1.5


@pytest.mark.parametrize("dtype", ["complex64", "uint16", "float64", "uint1", "quint8", "bits8"])
def test_a_dtype_without_a_database_name_is_a_miss(tmp_path: Path, dtype: str) -> None:
    record = Record("aten.mm.default", (Tensor((4, 8), f"torch.{dtype}"), Tensor((8, 3), f"torch.{dtype}")))
    answer = base_source(database(tmp_path)).query(record)
    assert isinstance(answer, Miss)
    assert answer.details["dtypes_without_a_database_name"] == [dtype]


def test_torch_records_on_any_device(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    base = base_source(database(tmp_path))
    for device in ("cpu", "meta"):
        x = torch.empty((4, 8), dtype=torch.bfloat16, device=device)
        weight = torch.empty((8, 3), dtype=torch.bfloat16, device=device)
        record = Record(torch.ops.aten.mm.default, (x, weight), {}, torch.mm(x, weight))
        assert as_leaf(record) == LeafOp.build(
            "aten.mm.default", [((4, 8), "bf16"), ((8, 3), "bf16")], [((4, 3), "bf16")]
        )
        assert hit(base.query(record)).latency_us == 1.5
    query = torch.empty((16, 512), dtype=torch.bfloat16, device="meta")
    cache = torch.empty((64, 128, 1, 128), dtype=torch.bfloat16, device="meta")
    for device, expected in (("cpu", "58.2"), ("meta", "invalid_seq_lens")):
        seq_lens = torch.full((16,), 4096, dtype=torch.int32, device=device)
        args = (query, cache, cache, None, None, None, seq_lens, None)
        answer = base.query(Record("tensor_cast.attention.default", args, {}, query))
        assert str(getattr(answer, "latency_us", None) or answer.code) == expected


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_json_and_a_record_give_the_equal_leaf() -> None:
    record = attention(lengths(*[4096] * 16), lengths(*[1] * 16))
    record.kwargs = {"scale": 0.5}
    cache = {"shape": [64, 128, 1, 128], "dtype": "bf16"}
    document = {
        "op": "tensor_cast.attention.default",
        "inputs": [
            {"shape": [16, 512], "dtype": "bf16"},
            cache,
            cache,
            {"shape": [16, 33], "dtype": "int32", "role": "block_table"},
            {"shape": [17], "dtype": "int32", "role": "query_start_loc"},
            {"shape": [16], "dtype": "int32", "role": "seq_lens"},
            {"shape": [16], "dtype": "int32", "role": "query_lens"},
        ],
        "outputs": [{"shape": [16, 512], "dtype": "torch.bfloat16"}],
        "attrs": {"scale": 0.5},
        "requests": {"query_lens": [1] * 16, "kv_lens": [4096] * 16, "block_table_shape": [16, 33]},
    }
    assert leaf_from_json(document) == leaf_from_json(json.dumps(document)) == leaf_from_record(record)
    assert leaf_from_json(leaf_to_json(leaf_from_record(record))) == leaf_from_record(record)


def test_json_leaves_out_what_is_usual() -> None:
    leaf = LeafOp.build("aten.unheard_of.default", [((4,), "int8"), ((), "int8", "FRACTAL_NZ")])
    assert leaf_to_json(leaf) == {
        "op": "aten.unheard_of.default",
        "inputs": [{"shape": [4], "dtype": "int8"}, {"shape": [], "dtype": "int8", "format": "FRACTAL_NZ"}],
    }


names = st.sampled_from([f"{name}.default" for name in known_operators()]) | st.from_regex(
    r"[a-z]{1,6}\.[a-z_]{1,8}\.default", fullmatch=True
)
words = st.text(max_size=8)
whole = st.integers(-(2**63), 2**63)
tensors = st.builds(
    TensorSpec,
    st.lists(st.integers(0, 4096), max_size=4).map(tuple),
    st.sampled_from(["bfloat16", "float32", "int8", "int4", "float8_e4m3fn", "bool"]),
    st.sampled_from(["ND", "FRACTAL_NZ"]),
    st.sampled_from(["", "", "x", "weight", "query", "seq_lens"]),
)
values = st.one_of(
    whole,
    st.floats(allow_nan=False),
    st.booleans(),
    words,
    st.none(),
    st.lists(whole, max_size=3).map(tuple),
    st.lists(words, min_size=1, max_size=3).map(tuple),
)


@st.composite
def requests(draw: st.DrawFn) -> Requests:
    count = draw(st.integers(0, 4))
    vector = st.none() | st.lists(st.integers(0, 9), min_size=count, max_size=count).map(tuple)
    phases: list[Phase | None] = [None, "prefill", "decode", "mixed"]
    phase = draw(st.sampled_from(phases))
    return Requests(draw(vector), draw(vector), phase, draw(st.sampled_from([None, (), (4, 33)])))


leaves = st.builds(
    LeafOp.build,
    names,
    st.lists(tensors, max_size=9),
    st.lists(tensors, max_size=3),
    st.dictionaries(words, values, max_size=4),
    st.none() | requests(),
    st.sampled_from(["direct", "child:tensor_cast.mlapo.default#0"]),
)


@given(leaves)
def test_json_reads_back_to_the_equal_leaf(leaf: LeafOp) -> None:
    assert leaf_from_json(leaf_to_json(leaf)) == leaf
    back = leaf_from_json(json.dumps(leaf_to_json(leaf)))
    assert (back, hash(back)) == (leaf, hash(leaf))


def test_infinite_attributes_survive() -> None:
    leaf = LeafOp.build("a.b.c", [], attrs={"limit": math.inf, "least": -math.inf})
    assert leaf_from_json(json.dumps(leaf_to_json(leaf), allow_nan=False)) == leaf


X = {"shape": [4, 8], "dtype": "bf16"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "operator JSON, line 1: Expecting property name enclosed in double quotes"),
        ('{"op": "a",\n "inputs": [}', "operator JSON, line 2: Expecting value"),
        ("[" * 100_000, "operator JSON: too many nested values"),
        ('{"op": "a", "op": "b"}', "operator JSON: the key 'op' stands twice in one object"),
        ('{"op": "a", "attrs": {"k": NaN}}', "operator JSON: NaN is no JSON number"),
        ('{"op": "\\ud800"}', "operator JSON: the text '\\ud800' holds half of a surrogate pair"),
        ({"op": "a", "requests": {"kv_lens": [2**63]}}, "operator JSON: requests.kv_lens: a length is larger than"),
        ({"op": "a", "attrs": {"k": {"float": "1"}}}, "operator JSON: attrs.k must be a number, text, boolean"),
        ("[]", "operator JSON: expected an object, got list"),
        ("3", "operator JSON: expected an object, got int"),
        ({}, "operator JSON: field 'op' must be a string such as 'aten.mm.default'"),
        ({"op": 3}, "operator JSON: field 'op' must be a string such as 'aten.mm.default'"),
        (
            {"op": "a", "input": []},
            "operator JSON: unknown field 'input' (did you mean 'inputs'?); "
            "allowed: op, inputs, outputs, attrs, requests, source",
        ),
        ({"op": "a", "inputs": {}}, "operator JSON: field 'inputs' must be a list of tensors"),
        ({"op": "a", "outputs": "x"}, "operator JSON: field 'outputs' must be a list of tensors"),
        ({"op": "a", "inputs": ["4,8:bf16"]}, "operator JSON: inputs[0] must be an object with 'shape' and 'dtype'"),
        (
            {"op": "a", "inputs": [X, {"shape": [4]}]},
            "operator JSON: inputs[1] must be an object with 'shape' and",
        ),
        (
            {"op": "a", "inputs": [X | {"fromat": "ND"}]},
            "operator JSON: unknown field 'inputs[0].fromat' (did you mean 'format'?); "
            "allowed: shape, dtype, format, role",
        ),
        (
            {"op": "a", "inputs": [X | {"shape": [4, "8"]}]},
            "operator JSON: inputs[0].shape must be a list of integers, got [4, '8']",
        ),
        (
            {"op": "a", "inputs": [X | {"shape": [True, 8]}]},
            "operator JSON: inputs[0].shape must be a list of integers, got [True, 8]",
        ),
        (
            {"op": "a", "outputs": [X | {"shape": [4, -8]}]},
            "operator JSON: outputs[0]: tensor shape (4, -8): every dimension must be an integer >= 0",
        ),
        (
            {"op": "a", "inputs": [X | {"shape": [10**30]}]},
            "operator JSON: inputs[0]: tensor shape has more than 2**63 - 1 elements",
        ),
        ({"op": "a", "inputs": [X | {"dtype": 16}]}, "operator JSON: inputs[0].dtype must be text, got 16"),
        ({"op": "a", "inputs": [X | {"role": None}]}, "operator JSON: inputs[0].role must be text, got None"),
        (
            {"op": "a", "inputs": [X, X | {"dtype": "bfloat61"}]},
            "operator JSON: inputs[1]: unknown dtype 'bfloat61' (did you mean 'bfloat16'?); known: bfloat16, bool",
        ),
        ({"op": "a", "attrs": [1]}, "operator JSON: field 'attrs' must be an object"),
        (
            {"op": "a", "attrs": {"k": {"a": 1}}},
            "operator JSON: attrs.k must be a number, text, boolean or a flat list, got {'a': 1}",
        ),
        (
            {"op": "a", "attrs": {"k": [[1]]}},
            "operator JSON: attrs.k must be a number, text, boolean or a flat list, got",
        ),
        ({"op": "a", "source": 3}, "operator JSON: source must be text, got 3"),
        ({"op": "a", "requests": [1]}, "operator JSON: field 'requests' must be an object"),
        (
            {"op": "a", "requests": {"kv_len": [1]}},
            "operator JSON: unknown field 'requests.kv_len' (did you mean 'kv_lens'?); "
            "allowed: query_lens, kv_lens, phase, block_table_shape",
        ),
        (
            {"op": "a", "requests": {"kv_lens": 4096}},
            "operator JSON: requests.kv_lens must be a list of integers, got 4096",
        ),
        (
            {"op": "a", "requests": {"kv_lens": [1.5]}},
            "operator JSON: requests.kv_lens must be a list of integers, got [1.5]",
        ),
        (
            {"op": "a", "requests": {"kv_lens": [-1]}},
            "operator JSON: requests: kv_lens: lengths must be >= 0, got (-1,)",
        ),
        (
            {"op": "a", "requests": {"query_lens": [1], "kv_lens": [1, 2]}},
            "operator JSON: requests: query_lens has 1 requests but kv_lens has 2",
        ),
        (
            {"op": "a", "requests": {"phase": "prefil"}},
            "operator JSON: requests: phase 'prefil': expected one of prefill, decode, mixed",
        ),
        ({"op": "a", "requests": {"phase": ["decode"]}}, "operator JSON: requests: phase ['decode']: expected one of"),
    ],
)
def test_wrong_json_names_the_field_what_was_got_and_what_is_allowed(document: Any, message: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        leaf_from_json(document)
    assert str(caught.value).startswith(message)
