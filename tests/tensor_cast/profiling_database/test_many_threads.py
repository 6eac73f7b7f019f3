"""Threads that ask at once never see each other's answers, reasons or details."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import base_source, row, source, write_database
from tensor_cast import LeafOp
from two_products import BF16

THREADS, ROUNDS = 8, 60


@pytest.fixture
def busy() -> Iterator[None]:
    """Threads change over as often as the interpreter can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def ask_from_many_threads(questions: Callable[[int], Iterator[tuple[str, str]]]) -> list[str]:
    """Every thread runs its questions `ROUNDS` times; returns what differed from what was expected."""
    start = threading.Barrier(THREADS)
    wrong: list[str] = []

    def work(number: int) -> None:
        start.wait()
        for _ in range(ROUNDS):
            wrong.extend(f"{number}: {got} not {expected}" for got, expected in questions(number) if got != expected)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def thread_database(folder: Path) -> Path:
    """Thread n has its own table `K<n>` with M = 4 in 10 + n us and M = 8 in 20 + n us."""
    tables = {f"K{n}": [row("4,8;8,3", BF16, 10.0 + n), row("8,8;8,3", BF16, 20.0 + n)] for n in range(THREADS)}
    operators: dict[str, dict[str, Any]] = {f"test.op{n}.default": {"kernel_type": f"K{n}"} for n in range(THREADS)}
    operators |= {f"test.absent{n}.default": {"kernel_type": f"Absent{n}"} for n in range(THREADS)}
    return write_database(folder, tables, operators)


def product(name: str, m: int) -> LeafOp:
    return LeafOp.build(name, [((m, 8), "bf16"), ((8, 3), "bf16")], [((m, 3), "bf16")])


@pytest.mark.usefixtures("busy")
def test_threads_never_see_each_others_answers_or_reasons(tmp_path: Path) -> None:
    base = base_source(thread_database(tmp_path))

    def questions(n: int) -> Iterator[tuple[str, str]]:
        hit = base.lookup(product(f"test.op{n}.default", 4))
        yield ("none" if hit is None else str(hit.latency_us)), str(10.0 + n)
        yield str(base.lookup(product(f"test.unknown{n}.default", 4))), "None"
        yield base.last_miss_reason, "unmapped"
        yield str(base.lookup(product(f"test.op{n}.default", 5 if n % 2 else 6))), "None"
        yield base.last_miss_reason, "shape_mismatch"
        yield str(base.lookup(product(f"test.absent{n}.default", 4))), "None"
        yield base.last_miss_reason, "csv_not_found"

    assert ask_from_many_threads(questions) == []


@pytest.mark.usefixtures("busy")
def test_threads_never_see_each_others_interpolations_or_details(tmp_path: Path) -> None:
    wrapped = source(thread_database(tmp_path))

    def questions(n: int) -> Iterator[tuple[str, str]]:
        between = wrapped.lookup(product(f"test.op{n}.default", 6))
        yield ("none" if between is None else str(between.latency_us)), str(15.0 + n)
        yield str(wrapped.lookup(product(f"test.unknown{n}.default", 4))), "None"
        yield wrapped.last_miss_reason, f"wrapper_unmapped:test.unknown{n}.default"
        measured = wrapped.lookup(product(f"test.op{n}.default", 8))
        yield ("none" if measured is None else str(measured.latency_us)), str(20.0 + n)
        yield str(wrapped.lookup(product(f"test.op{n}.default", 17 + n))), "None"
        yield wrapped.last_miss_reason, "outside_axis_boundary"
        yield str(wrapped.last_miss_details.get("target_axes", {}).get("axis_0")), str(17.0 + n)

    assert ask_from_many_threads(questions) == []
