"""Programs with known results: the whole corpus where it is at hand, and a copy of its essential cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import conformance
from serq.runner import run

CASES = Path(__file__).parent / "cases"


@pytest.mark.parametrize("name", conformance.names(CASES))
def test_essential_case(name: Any) -> None:
    assert conformance.differences(name, CASES) == []


def _ending_in_a_report() -> list[str]:
    names = conformance.names(CASES, "q")
    return [name for name in names if conformance.expectation(name, CASES)["expect"]["status"] != "error"]


@pytest.mark.parametrize("name", _ending_in_a_report())
def test_taking_every_iteration_by_itself_gives_the_same(name: Any) -> None:
    """What is run through together, or worked out queue by queue, is what the steps give."""
    case = conformance.expectation(name, CASES)
    program = conformance.compiled(case, CASES)
    slow = run(program, step_by_step=True).to_json(samples=True)
    assert conformance.departures(slow, run(program).to_json(samples=True)) == []


@pytest.mark.skipif(not conformance.CORPUS.is_dir(), reason="the conformance corpus is not beside the checkout")
@pytest.mark.parametrize("name", conformance.names())
def test_corpus(name: Any) -> None:
    assert conformance.differences(name) == []
