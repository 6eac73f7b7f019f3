"""What an engine executes, as an observer sees it: real work only, read-only, and free of effects."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from pathlib import Path

import pytest

import serq
from conformance import CORPUS, compiled, expectation, names
from serq import ir
from serq.compiler import compile as compile_program
from serq.sim.selection import SelectedRequest, Selection

EXAMPLES = Path(__file__).parents[2] / "examples" / "serving"
PROGRAMS = [path for path in sorted(EXAMPLES.glob("*.sq")) if not path.name.endswith(".wl.sq")]


def example(path: Path) -> ir.Program:
    """A split program runs to a horizon of its own here."""
    workload = path.with_suffix(".wl.sq")
    if workload.exists():
        return compile_program(path, workload=workload, horizon=60.0)
    whole = compile_program(path)
    return whole if whole.horizon is None else compile_program(path, horizon=whole.horizon / 4, warmup=0.0)


def selections(program: ir.Program) -> list[Selection]:
    seen: list[Selection] = []
    serq.run(program, observer=seen.append)
    return seen


def test_an_observer_sees_each_iteration_in_order() -> None:
    program = compile_program(EXAMPLES / "rbln_like.sq")
    seen = selections(program)
    assert seen
    by_engine: dict[str, list[Selection]] = defaultdict(list)
    for one in seen:
        by_engine[one.engine].append(one)
    for found in by_engine.values():
        assert [one.step for one in found] == list(range(len(found)))
        assert [one.time for one in found] == sorted(one.time for one in found)


def test_a_selection_cannot_be_changed() -> None:
    one = Selection(0, 0.0, "npu", (SelectedRequest(0, 0, "prefill", 4.0, 0.0, 1.0),))
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.step = 1  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.requests[0].tokens = 8.0  # type: ignore[misc]
    assert one.tokens == 4.0


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_report_is_the_same_to_the_byte_with_and_without_an_observer(path: Path) -> None:
    program = example(path)
    looked, alone = serq.run(program, observer=lambda _: None), serq.run(program)
    assert json.dumps(looked.to_json(samples=True)) == json.dumps(alone.to_json(samples=True))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_running_ahead_hands_over_what_stepping_does(path: Path) -> None:
    program = example(path)
    fast = serq.run(program, iterations=True).iterations
    slow = serq.run(program, iterations=True, step_by_step=True).iterations
    assert [one.requests for one in fast] == [one.requests for one in slow]


def test_a_decode_goes_on_where_the_last_iteration_of_its_request_stopped() -> None:
    """Contexts follow the tokens: the next iteration of a turn begins where the last one ended."""
    program = compile_program(EXAMPLES / "rbln_like.sq")
    ends: dict[int, float] = {}
    checked = 0
    for one in selections(program):
        for got in one.requests:
            if got.context is None:
                continue
            if got.request in ends and got.context >= ends[got.request]:
                assert got.context == ends[got.request]
                checked += 1
            ends[got.request] = got.context + got.tokens
            if got.blocks is not None:
                assert got.blocks >= 1
    assert checked > 10


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus lies beside the checkout, in ../shared")
def test_the_whole_corpus_runs_the_same_with_an_observer() -> None:
    different = []
    for name in names():
        case = expectation(name)
        if case["expect"]["status"] == "error":
            continue
        program = compiled(case, CORPUS)
        looked, alone = serq.run(program, observer=lambda _: None), serq.run(program)
        if json.dumps(looked.to_json(samples=True)) != json.dumps(alone.to_json(samples=True)):
            different.append(name)
    assert different == []
