"""A compiled program that no source text could have given is refused when it is read."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from serq.compiler import compile as compile_program
from serq.errors import SerqError
from serq.ir.json_form import from_json, to_json

TEXT = """
pool kv { cap 64; block 16; evict by (age); } pool seats { cap 2; admit via npu; }
pool desk [2] { cap 4; queue by (waited); }
stage npu : step { budget 8; cost 1 + tokens; memory kv; }
stage lane : fifo(2); stage wire : ps(3);
workload { arrive poisson(2); hidden out; init { set out = 3; } }
session {
  turn;
  hold seats (1), kv (4) at admission (a = cachedin(kv)) { prefill (new) growing kv; } cache (a)
  hold desk[serial - serial] (1) { run lane (1); grow desk[0] (1); }
  branch (serial > 1) { observe seen = now; } else { }
  run wire (2);
  end;
}
gauge g = queue(npu);
claim c : some iteration of npu (tokens > 0);
run { horizon 10; arrivals 3; }
"""
NUMBER = {"node": "Num", "value": -1.0}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(to_json(compile_program(source=TEXT)))
    return found


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a document."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> str:
    found = copy.deepcopy(document)
    at(found, path[:-1])[path[-1]] = value
    return json.dumps(found)


def node(document: dict[str, Any], kind: str, count: int = 0) -> tuple[Any, ...]:
    """The path of a node of a kind."""
    found = [path for path in places(document) if isinstance(at(document, path), dict)]
    return [path for path in found if at(document, path).get("node") == kind][count]


@pytest.mark.parametrize(
    "name", ["../victim", "/etc/x", "a\0b", "", ".", "..", "a/b", "a\\b", "1a", "a b", "a..b", "a\n", "-", "a.", "ü-"]
)
@pytest.mark.parametrize("path", [("observes", 0), ("attrs", 9), ("pools", 0, "name"), ("stages", 0, "name")])
def test_a_name_is_an_identifier(document: Any, path: Any, name: Any) -> None:
    with pytest.raises(SerqError) as refused:
        from_json(changed(document, path, name))
    assert refused.value.kind == "interchange"
    assert repr(name) in refused.value.message


@pytest.mark.parametrize("name", ["größe", "pod.reused", "_1", "x2"])
def test_the_identifiers_of_the_language_stay(document: Any, name: Any) -> None:
    assert from_json(changed(document, ("observes", 0), name)).observes == (name,)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (("pools", 0, "block"), [0, -16, "nan", "inf"]),
        (("pools", 0, "cap"), [-1, "nan", "-inf"]),
        (("pools", 2, "queue_every"), [0, -2, "inf", "nan"]),
        (("pools", 3, "index"), [-1, 0]),
        (("pools", 0, "preempt"), [{"kind": "by"}, {"kind": "leases", "keys": [NUMBER], "every": 0}]),
        (("stages", 1, "servers"), [0, -1]),
        (("stages", 1, "capacity"), [NUMBER]),
        (("stages", 2, "capacity"), [NUMBER, None]),
        (("stages", 0, "step", "budget"), [NUMBER, {"node": "Num", "value": "nan"}]),
        (("stages", 0, "step", "granule"), [0, -1, "nan"]),
        (("horizon",), [0, -1, "inf", "nan"]),
        (("warmup",), [-1, 10, "nan"]),
        (("seed",), [-1, 2**64]),
        (("arrivals",), [0, -1, 2**64]),
        (("arrival", "value"), [0, -1, "inf", "nan"]),
        (("arrival",), [{"kind": "closed", "value": 0.5}, {"kind": "batch", "value": 1e9}, {"kind": "renewal"}]),
        (("share",), ["fair"]),
        (("observes",), [["seen", "seen"]]),
        (("trace",), [{"path": "a\0b"}, {"path": "t", "sessions": []}, {"path": "t", "sessions": [[[1.5, 1, 0, 0]]]}]),
        (("claims", 0, "stage"), [None, 7]),
        (("builtins", 0, 1), [3]),
    ],
)
def test_a_number_has_the_bounds_of_its_declaration(document: Any, path: Any, values: Any) -> None:
    for value in values:
        with pytest.raises(SerqError) as refused:
            from_json(changed(document, path, value))
        assert refused.value.kind == "interchange", value


@pytest.mark.parametrize(
    ("kind", "count", "field", "value"),
    [
        ("Grow", 0, "amount", NUMBER),
        ("Run", 0, "latency", NUMBER),
        ("Run", 1, "work", NUMBER),
        ("Run", 1, "share", "fair"),
        ("Branch", 0, "test", NUMBER),
        ("Hold", 0, "pools", []),
        ("Hold", 0, "private_from", 0),
        ("Hold", 1, "reuse", NUMBER),
    ],
)
def test_a_statement_means_something(document: Any, kind: Any, count: Any, field: Any, value: Any) -> None:
    with pytest.raises(SerqError) as refused:
        from_json(changed(document, (*node(document, kind, count), field), value))
    assert refused.value.kind == "interchange"


def test_a_family_needs_an_index_within_it(document: Any) -> None:
    path = (*node(document, "Hold", 1), "pools", 0, "pool", "index")
    for value in (None, {"node": "Num", "value": 2.0}, {"node": "Num", "value": 0.5}):
        with pytest.raises(SerqError, match="index"):
            from_json(changed(document, path, value))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("gauges", 0, "value"), {"node": "Ctx", "name": "now"}, "'now' cannot be read in a gauge"),
        (("pools", 0, "evict", 0), {"node": "Ctx", "name": "waited"}, "'waited' cannot be read in an eviction key"),
        (("pools", 2, "queue", 0), {"node": "Attr", "slot": 4}, "'out' cannot be read in a queue key"),
        (("stages", 0, "step", "cost"), {"node": "Attr", "slot": 1}, "'serial' cannot be read in a step cost"),
        (("claims", 0, "test"), {"node": "Agg", "kind": "count", "observe": 0}, "cannot be read in an iteration claim"),
        (
            ("pools", 2, "queue", 0),
            {"node": "Sample", "kind": "exp", "args": [NUMBER]},
            "a draw cannot be read in a queue key",
        ),
    ],
)
def test_an_expression_reads_what_its_moment_has(document: Any, path: Any, value: Any, message: Any) -> None:
    with pytest.raises(SerqError, match=message):
        from_json(changed(document, path, value))
