"""Which stage follows which, and when: what a drawing shows."""

from __future__ import annotations

from typing import Any

import pytest

from serq import ir
from serq.compiler import compile as compile_program
from serq.report.drawing import draw_svg
from serq.report.paths import paths

NAMES = ("one", "two", "three", "four")


def program(body: str) -> ir.Program:
    """A server of this body; what follows only makes use of every stage and adds no step."""
    stages = " ".join(f"stage {name} : fifo;" for name in NAMES)
    unused = " ".join(f"if (serial > 900) {{ end; run {name} (cost({name}, 1)); end; }}" for name in NAMES)
    for name in NAMES:
        body = body.replace(f"run {name};", f"run {name} (cost({name}, 1));")
    return compile_program(
        source=f"fn main() {{ {stages} server (x, y) {{ {body} {unused} }} }}",
        workload_source="workload { arrive batch(1); turn { set x = 0; set y = 0; } send (x, y); }",
        horizon=9,
    )


def steps(body: str) -> dict[tuple[str, str], list[str]]:
    return {(NAMES[one], NAMES[two]): labels for (one, two), labels in paths(program(body)).steps.items()}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "run one; if (x < 5) { run two; } else { run three; }",
            {("one", "two"): ["x < 5"], ("one", "three"): ["not (x < 5)"]},
        ),
        (
            "run one; if (x) { run two; } run four;",
            {("one", "two"): ["x"], ("one", "four"): ["not x"], ("two", "four"): [""]},
        ),
        (
            "run one; if (x) { if (y) { run two; } } run four;",
            {("one", "two"): ["x and y"], ("one", "four"): ["x and not y", "not x"], ("two", "four"): [""]},
        ),
        ("run one; if (x) { set z = 1; } run three;", {("one", "three"): [""]}),
        ("run one; if (x) { end; } run three;", {("one", "three"): ["not x"]}),
        (
            "run one; while (x > 1) { run two; run three; } run four;",
            {
                ("one", "two"): ["x > 1"],
                ("two", "three"): [""],
                ("three", "two"): ["x > 1"],
                ("one", "four"): ["not (x > 1)"],
                ("three", "four"): ["not (x > 1)"],
            },
        ),
        (
            "run one; if (~bernoulli(0.5)) { run three; } else { run four; }",
            {("one", "three"): ["~bernoulli(0.5)"], ("one", "four"): ["not ~bernoulli(0.5)"]},
        ),
    ],
)
def test_the_steps_are_those_a_session_can_take(body: Any, expected: Any) -> None:
    assert steps(body) == expected


def test_many_branches_and_loops_inside_each_other_take_no_time() -> None:
    branches = "if (x == 1) { run one; } " * 60
    loops = "while (x > 1) { run two; " * 20 + "}" * 20
    assert len(paths(program(branches + loops)).steps) < 20


def test_a_condition_is_short_and_stands_at_its_arrow() -> None:
    picture = draw_svg(program("run one; if (x + y + x + y + x + y < 5 + y) { run three; }"))
    labels = [line.split(">")[-2].split("<")[0] for line in picture.splitlines() if 'class="when"' in line]
    assert any(label.startswith("(") and label.endswith("…") for label in labels)
    assert max(map(len, labels)) < 60
