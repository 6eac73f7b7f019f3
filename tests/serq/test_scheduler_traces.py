"""Programs over `src/serq/lib` take, step by step, the decisions of the schedulers they describe.

The tables hold traces of vLLM V1's default scheduler and of RBLN's; a few of their cases are written out here, and one
more worked out by hand from the rules of the former.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import scheduler_traces as traces

TABLES = Path(__file__).resolve().parents[3] / "shared" / "conformance" / "input-shapes"

NOT_EXPRESSIBLE = {
    "018ccdb8cd97": "a configuration refused before any step: the language has no largest model length to compare "
    "the token budget with",
}
"""Cases no program can be written for, each with the reason.  All others are compared."""


@cache
def table(name: str) -> dict[str, Any]:
    path = TABLES / f"{name}.json"
    return {case["id"]: case for case in json.loads(path.read_text())["cases"]} if path.is_file() else {}


def written(settings: dict[str, int], requests: Sequence[tuple[str, int, int, int]], steps: Sequence[Any]) -> Any:
    """A case from (name, step, prompt, output) and, per step, (selected, preempted, finished, running, free blocks).

    `selected` is like "A p 0 64, B d 30 1 *": name, phase, first position, tokens, and a star where it samples.
    """
    trace = []
    for number, (selected, preempted, finished, running, free) in enumerate(steps):
        parts = [part.split() for part in selected.split(", ") if part]
        rows = [[p[0], {"p": "prefill", "d": "decode"}[p[1]], int(p[2]), int(p[3]), p[4:] == ["*"]] for p in parts]
        names = {"preempted": preempted.split(), "finished": finished.split(), "running": running.split()}
        trace.append({"step": number, "selected": rows, **names, "free_blocks": free})
    arrivals = [{"id": name, "step": step, "prompt": prompt, "output": out} for name, step, prompt, out in requests]
    return {"id": "written", "in": {**settings, "arrivals": arrivals}, "out": {"trace": trace}}


W1 = written(
    {"max_num_seqs": 3, "budget": 64, "block_size": 16, "num_blocks": 400},
    [("A", 0, 100, 4), ("B", 0, 10, 3), ("C", 2, 30, 3)],
    [
        ("A p 0 64", "", "", "A", 395),
        ("A p 64 36 *, B p 0 10 *", "", "", "A B", 391),
        ("A d 100 1 *, B d 10 1 *, C p 0 30 *", "", "", "A B C", 389),
        ("A d 101 1 *, B d 11 1 *, C d 30 1 *", "", "B", "A C", 390),
        ("A d 102 1 *, C d 31 1 *", "", "A C", "", 399),
    ],
)
# A needs a third block at step 3: B, the last admitted, is preempted, and later starts again with its three samples
W4 = written(
    {"max_num_seqs": 3, "budget": 64, "block_size": 16, "num_blocks": 6},
    [("A", 0, 30, 20), ("B", 0, 30, 20)],
    [
        ("A p 0 30 *, B p 0 30 *", "", "", "A B", 1),
        ("A d 30 1 *, B d 30 1 *", "", "", "A B", 1),
        ("A d 31 1 *, B d 31 1 *", "", "", "A B", 1),
        ("A d 32 1 *", "B", "", "A", 2),
        *[(f"A d {position} 1 *", "", "", "A", 2) for position in range(33, 48)],
        ("A d 48 1 *", "", "A", "", 5),
        ("B p 0 33 *", "", "", "B", 2),
        *[(f"B d {position} 1 *", "", "", "B", 2) for position in range(33, 48)],
        ("B d 48 1 *", "", "B", "", 5),
    ],
)
# B, preempted with four samples, is preempted again while it computes them anew: it still knows all seven tokens
AGAIN = written(
    {"max_num_seqs": 2, "budget": 4, "block_size": 4, "num_blocks": 5, "reserve_full": False},
    [("A", 0, 4, 9), ("B", 0, 3, 5)],
    [
        ("A p 0 4 *", "", "", "A", 3),
        ("A d 4 1 *, B p 0 3 *", "", "", "A B", 1),
        ("A d 5 1 *, B d 3 1 *", "", "", "A B", 1),
        ("A d 6 1 *, B d 4 1 *", "", "", "A B", 0),
        ("A d 7 1 *, B d 5 1 *", "", "", "A B", 0),
        ("A d 8 1 *", "B", "", "A", 1),
        ("A d 9 1 *, B p 0 3", "", "", "A B", 0),
        ("A d 10 1 *", "B", "", "A", 1),
        ("A d 11 1 *, B p 0 3", "", "A", "B", 3),
        ("B p 3 4 *", "", "B", "", 4),
    ],
)
R1 = written(
    {"max_num_seqs": 4, "budget": 128, "block_size": 1024, "num_blocks": 400},
    [("A", 0, 100, 4), ("B", 0, 10, 3), ("C", 2, 300, 3)],
    [
        ("A p 0 100 *", "", "", "A", 398),
        ("B p 0 10 *", "", "", "A B", 397),
        ("C p 0 128", "", "", "A B C", 396),
        ("C p 128 128", "", "", "A B C", 396),
        ("C p 256 44 *", "", "", "A B C", 396),
        ("A d 100 1 *, B d 10 1 *, C d 300 1 *", "", "", "A B C", 396),
        ("A d 101 1 *, B d 11 1 *, C d 301 1 *", "", "B C", "A", 398),
        ("A d 102 1 *", "", "A", "", 399),
    ],
)
# a waiting prefill has the whole budget, although a decode had already taken a token of it
R2 = written(
    {"max_num_seqs": 4, "budget": 4, "block_size": 1024, "num_blocks": 400},
    [("A", 0, 2, 3), ("B", 1, 4, 1)],
    [
        ("A p 0 2 *", "", "", "A", 398),
        ("B p 0 4 *", "", "B", "A", 398),
        ("A d 2 1 *", "", "", "A", 398),
        ("A d 3 1 *", "", "A", "", 399),
    ],
)
# prompts of one token decode at once; the prefill between them is not let in together with the first
R5 = written(
    {"max_num_seqs": 4, "budget": 128, "block_size": 1024, "num_blocks": 400},
    [("A", 0, 1, 3), ("B", 0, 200, 2), ("C", 0, 1, 2)],
    [
        ("A d 0 1 *", "", "", "A", 398),
        ("B p 0 128", "", "", "A B", 397),
        ("B p 128 72 *", "", "", "A B", 397),
        ("A d 1 1 *, B d 200 1 *, C d 0 1 *", "", "B", "A C", 397),
        ("A d 2 1 *, C d 1 1 *", "", "A C", "", 399),
    ],
)


@pytest.mark.parametrize("case", [W1, W4, AGAIN], ids=["chunks", "preemption", "preempted_again"])
def test_vllm_written_case(case: Any, tmp_path: Path) -> None:
    assert traces.vllm_divergence(case, tmp_path) is None


@pytest.mark.parametrize("case", [R1, R2, R5], ids=["displaced", "takeover", "one_token_prompts"])
def test_rbln_written_case(case: Any, tmp_path: Path) -> None:
    assert traces.rbln_divergence(case, tmp_path) is None


def test_a_departure_is_told_by_its_first_step(tmp_path: Path) -> None:
    wrong = copy.deepcopy(W1)
    wrong["in"]["arrivals"][2]["prompt"] = 31
    found = traces.vllm_divergence(wrong, tmp_path)
    assert found is not None
    assert found.startswith("written step 2: the scheduler has A:d1 B:d1 C:p30, 3 seats, 10 blocks; the program has")
    assert found.endswith("A:d1 B:d1 C:p31, 3 seats, 10 blocks")


@pytest.mark.parametrize("name", ["sched_vllm_v1", "sched_rbln"])
def test_what_is_left_out_is_refused_by_the_scheduler_itself(name: Any) -> None:
    if not table(name):
        pytest.skip("the tables are not beside the checkout")
    refused = {key for key, case in table(name).items() if "error" in case}
    assert refused == {key for key in NOT_EXPRESSIBLE if key in table(name)}


def check(name: str, key: str, folder: Path) -> None:
    if key in NOT_EXPRESSIBLE:
        pytest.skip(NOT_EXPRESSIBLE[key])
    divergence = traces.vllm_divergence if name == "sched_vllm_v1" else traces.rbln_divergence
    found = divergence(table(name)[key], folder)
    assert found is None, found


@pytest.mark.skipif(not TABLES.is_dir(), reason="the tables are not beside the checkout")
@pytest.mark.parametrize("key", table("sched_vllm_v1"))
def test_vllm_trace(key: Any, tmp_path: Path) -> None:
    check("sched_vllm_v1", key, tmp_path)


@pytest.mark.skipif(not TABLES.is_dir(), reason="the tables are not beside the checkout")
@pytest.mark.parametrize("key", table("sched_rbln"))
def test_rbln_trace(key: Any, tmp_path: Path) -> None:
    check("sched_rbln", key, tmp_path)
