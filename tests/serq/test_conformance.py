"""Programs with known results: the whole corpus where it is at hand, and a copy of its essential cases."""

from __future__ import annotations

from pathlib import Path

import conformance
import pytest

CASES = Path(__file__).parent / "cases"


@pytest.mark.parametrize("name", conformance.names(CASES))
def test_essential_case(name):
    assert conformance.differences(name, CASES) == []


@pytest.mark.skipif(not conformance.CORPUS.is_dir(), reason="the conformance corpus is not beside the checkout")
@pytest.mark.parametrize("name", conformance.names())
def test_corpus(name):
    assert conformance.differences(name) == []
