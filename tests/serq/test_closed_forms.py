"""Simulated queues against their closed forms.

Each mean is taken over independent seeds; the theoretical value must lie within four standard errors of the mean over
the seeds, which a right simulator misses once in ten thousand times; the seeds are fixed, so the outcome is too.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest

from serq.compiler import compile as compile_program
from serq.runner import run

SEEDS = range(1, 9)

QUEUE = """
stage desk : {stage};
workload {{ arrive {arrive}; }}
session {{ set came = now; run desk ({service}); observe stay = now - came; end; }}
run {{ horizon 4000; warmup 400; }}
"""


def means(source: str, observe: str) -> list[float]:
    found = []
    for seed in SEEDS:
        mean = run(compile_program(source=source, seed=seed)).observes[observe].mean
        assert mean is not None
        found.append(mean)
    return found


def assert_near(theory: float, samples: list[float]) -> None:
    error = statistics.stdev(samples) / math.sqrt(len(samples))
    assert abs(statistics.mean(samples) - theory) <= 4 * error, (theory, statistics.mean(samples), error)


def erlang_c(servers: int, load: float) -> float:
    """Probability to wait in M/M/c with `load` = arrival rate over service rate."""
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(load**k / math.factorial(k) for k in range(servers)) + last)


@pytest.mark.parametrize(
    ("stage", "service", "theory"),
    [
        ("fifo", "~exp(0.7)", 0.7 / (1 - 0.7)),
        ("fifo (3)", "~exp(2.1)", 2.1 + erlang_c(3, 2.1) * 2.1 / (3 - 2.1)),
        ("fifo", "0.7", 0.7 + 0.7 * 0.7 / (2 * (1 - 0.7))),
        ("fifo", "~erlang(2, 0.7)", 0.7 + 0.7 * 0.7 * 1.5 / (2 * (1 - 0.7))),
        ("ps (1)", "~exp(0.7)", 0.7 / (1 - 0.7)),
        ("ps (1)", "0.7", 0.7 / (1 - 0.7)),
        ("delay", "~exp(0.7)", 0.7),
    ],
    ids=["M/M/1", "M/M/3", "M/D/1", "M/E2/1", "M/M/1-PS", "M/D/1-PS", "M/M/inf"],
)
def test_open_queue(stage: Any, service: Any, theory: Any) -> None:
    """Pollaczek-Khinchine, Erlang C, and the insensitivity of processor sharing and delay to the distribution."""
    assert_near(theory, means(QUEUE.format(stage=stage, service=service, arrive="poisson (1)"), "stay"))


def test_closed_network() -> None:
    """Five customers alternate between a think delay of mean 2 and an exponential server of mean 1.

    Mean value analysis, exact for this network: R(n) = S (1 + Q(n-1)), X = n / (Z + R), Q = X R.
    """
    queue = response = 0.0
    for n in range(1, 6):
        response = 1.0 + queue
        queue = n / (2.0 + response) * response
    source = """
    stage desk : fifo;
    stage home : delay;
    workload { arrive closed (5); }
    session { run home (~exp(2)); set came = now; run desk (~exp(1)); observe stay = now - came; end; }
    run { horizon 4000; warmup 400; }
    """
    assert_near(response, means(source, "stay"))


def test_same_seed_same_report() -> None:
    source = QUEUE.format(stage="fifo", service="~exp(0.7)", arrive="poisson (1)")
    first, again, other = (run(compile_program(source=source, seed=seed)).to_json(samples=True) for seed in (5, 5, 6))
    assert first == again
    assert first != other
