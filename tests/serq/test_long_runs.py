"""Runs of any length in bounded memory: samples, changes of gauges and gaps between tokens leave digests."""

from __future__ import annotations

import gc
import math
import random
import tracemalloc
from array import array

import pytest

from serq.compiler import compile as compile_program
from serq.ir.arithmetic import total
from serq.report.report import Report
from serq.runner import run
from serq.sim import gauges, histogram, rng, samples
from serq.sim.histogram import Histogram
from serq.sim.samples import Digest
from serq.sim.stats import summarise

QUEUE = """
stage desk : fifo;
gauge waiting_now = queue(desk);
workload { arrive poisson (0.5); }
session { set came = now; run desk (~exp(1)); observe stay = now - came; end; }
run { horizon 40000; warmup 500; }
"""

ENGINE = """
fn main() {
  device chip { kv cap 2000; }
  engine npu on chip {
    slots cap 8;
    tokens cap 256;
    scheduler {
      advance running;
      admit waiting while (running.preempted == 0)
        taking slots (1), kv (request.known) cache (request.known);
    }
    worker { forward (0.01 + 0.0001 * batch.tokens + 0.000001 * batch.kv_decode); }
  }
  pool slots on npu { queue fifo; }
  pool kv on chip { block 16; evict lru; preempt lifo; }
  server (prompt, hidden answer) { npu (prompt, answer); }
}
"""
TRAFFIC = """
workload {
  arrive poisson (3);
  turn { set prompt = floor(~uniform(10, 100)); set answer = 1 + floor(~exp(20)); }
  send (prompt, answer);
  session { turn; while (turn_no < 2) { tool ~exp(1); turn; } }
}
"""


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests begin after 500 samples or changes, and 300 different gaps; few random numbers are prepared."""
    for room in (samples, gauges):
        monkeypatch.setattr(room, "KEPT", 500)
        monkeypatch.setattr(room, "_BUFFER", 100)
    monkeypatch.setattr(samples, "_MOST_RUNS", 200)
    monkeypatch.setattr(histogram, "_DISTINCT", 300)
    monkeypatch.setattr(rng.StreamBank, "_KEPT", 2)
    monkeypatch.setattr(rng, "_MOST_BLOCKS", 16)


def engine(arrivals: int) -> Report:
    return run(compile_program(source=ENGINE, workload_source=TRAFFIC, horizon=1e9, arrivals=arrivals, warmup=1.0))


def queue(horizon: float = 40000.0, *, keep: bool = False) -> Report:
    return run(compile_program(source=QUEUE, horizon=horizon), samples=keep)


def test_sums_round_from_left_to_right_on_every_python() -> None:
    # 1e100 + 1 is 1e100, so the 1 is lost; a compensated sum would give 1.
    assert total([1e100, 1.0, -1e100]) == 0.0


@pytest.mark.parametrize("q", [0.01, 0.5, 0.99])
def test_percentiles_of_buckets_are_within_their_error(q: float) -> None:
    draw = random.Random(1)
    values = [draw.lognormvariate(0, 3) * draw.choice((-1, 1, 1)) for _ in range(5000)] + [0.0] * 50
    found = Histogram()
    found.coarsen()
    for value in values:
        found.add(value, 2)
    exact = sorted(values * 2)[math.ceil(q * 2 * len(values)) - 1]
    got = found.percentile(q)
    assert got is not None
    assert abs(got - exact) <= abs(exact) * Histogram.WITHIN
    assert found.count == 2 * len(values)


def test_buckets_keep_infinite_and_zero_values() -> None:
    import numpy as np

    found = Histogram()
    found.coarsen()
    found.add_many(np.array([-math.inf, 0.0, math.inf]))
    assert [found.percentile(q) for q in (0.1, 0.5, 1.0)] == [-math.inf, 0.0, math.inf]


def test_a_digest_tells_what_the_list_tells() -> None:
    draw = random.Random(2)
    values = [draw.expovariate(0.2) for _ in range(64_000)]  # 2 000 runs of 32, which pair up: whole batches
    digest = Digest()
    for at in range(0, len(values), 6_400):
        digest.fold(array("d", values[at : at + 6_400]))
    got, exact = digest.summary(), summarise(values)
    assert got.count == exact.count
    for name in ("mean", "ci", "cv2"):
        assert getattr(got, name) == pytest.approx(getattr(exact, name), rel=1e-11), name
    assert got.p99 == pytest.approx(exact.p99, rel=got.p99_within)
    assert 0 < got.p99_within < 1.1e-3
    assert exact.p99_within == 0


@pytest.mark.usefixtures("small_limits")
def test_a_long_run_agrees_with_one_that_keeps_everything() -> None:
    short, whole = queue(), queue(keep=True)
    assert short.events == whole.events
    assert short.stages == whole.stages
    got, exact = short.observes["stay"], whole.observes["stay"]
    assert got.samples == ()
    assert len(exact.samples) == exact.count == got.count > 10_000
    assert got.mean == pytest.approx(exact.mean, rel=1e-11)
    assert got.cv2 == pytest.approx(exact.cv2, rel=1e-9)
    assert got.p99 == pytest.approx(exact.p99, rel=got.p99_within)
    assert got.ci == pytest.approx(exact.ci, rel=0.1)  # the last runs do not fill a batch
    gauge, changes = short.gauges["waiting_now"], whole.gauges["waiting_now"]
    assert gauge.times == ()
    assert len(changes.times) > 10_000
    assert gauge.mean == pytest.approx(changes.mean, rel=1e-11)
    assert (gauge.min, gauge.max) == (changes.min, changes.max)
    assert gauge.ci == pytest.approx(changes.ci, rel=0.01)  # a window may lie across two of the twenty


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("kind", ["queue", "engine"])
def test_memory_does_not_grow_with_the_run(kind: str) -> None:
    def peak(size: int) -> int:
        gc.collect()
        tracemalloc.start()
        report = queue(1000.0 * size) if kind == "queue" else engine(100 * size)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert report.arrivals >= 90 * size
        return found

    peak(4)
    assert peak(32) <= 1.25 * peak(8)
