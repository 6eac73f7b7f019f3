"""Where the steps of a plan come from: batch sizes, a trace through the vendor's own selection, or steps of a run."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from castq.shapes.planned import Work
from castq.shapes.settings_file import Engine
from castq.shapes.vllm.replay import replay
from castq.shapes.vllm.requests import Arrival
from castq.shapes.vllm.scheduler import Share
from tensor_cast.errors import DataFileError, InvalidValueError

__all__ = ["Request", "batch_sizes", "decode_batch", "dumped_steps", "read_histogram", "traced_steps"]

Request = tuple[float, int, int]
"""Arrival in seconds, prompt tokens, output tokens."""
_CONTEXT: Final = 1024
_MOST_BATCHES: Final = 65_536


def batch_sizes(text: str) -> tuple[int, ...]:
    """`8`, `1,2,4` or `1..256`.  Raises InvalidValueError for anything else, and for a batch of 0."""
    found: list[int] = []
    for part in text.split(","):
        low, dots, high = part.strip().partition("..")
        try:
            first, last = int(low), int(high if dots else low)
        except ValueError:
            raise InvalidValueError(f"--batch {text!r}: expected N, N,M or N..M") from None
        if first < 1 or last < first or last > _MOST_BATCHES:
            raise InvalidValueError(f"--batch {text!r}: batches go from 1 upwards, to at most {_MOST_BATCHES}")
        found += range(first, last + 1)
    return tuple(dict.fromkeys(found))


def decode_batch(count: int, query_len: int) -> tuple[Work, ...]:
    """So many decodes with all their drafts."""
    return (Work(_CONTEXT, query_len, _CONTEXT + 1, query_len - 1),) * count


def traced_steps(
    engine: Engine, requests: Sequence[Request], step_time: float, watch: Callable[[float], None] | None = None
) -> Iterator[tuple[Work, ...]]:
    """The steps that requests make on the vendor's scheduler, each `step_time` seconds long, without the idle ones."""
    if not requests:
        raise InvalidValueError("the trace has no requests")
    start = min(time for time, _, _ in requests)
    arrivals = [
        Arrival(str(at), prompt, output, int((time - start) / step_time))
        for at, (time, prompt, output) in enumerate(requests)
    ]
    done, total = 0, len(arrivals)
    for step in replay(engine.make_scheduler(), arrivals):
        done += len(step.ended)
        if watch is not None and step.number % 256 == 0:
            watch(done / total)
        if step.stalled:
            raise InvalidValueError(
                f"step {step.number}: {step.waiting} requests wait and the first of them never fits: raise num_blocks"
            )
        if step.shares:
            yield tuple(
                Work(share.start, share.tokens, _known(share.start, share.tokens, share.prefill))
                for share in step.shares
            )


def _work(share: Share) -> Work:
    return Work(share.start, share.tokens, _known(share.start, share.tokens, share.prefill))


def _known(start: int, tokens: int, prefill: bool) -> int:
    """Tokens known of a request that runs on: a prefill has more than one left."""
    return start + max(tokens, 2) if prefill else start + tokens


def dumped_steps(path: Path) -> Iterator[tuple[str, tuple[Work, ...]]]:
    """Engine and work of each step of `iterations.csv`, which `castq run --dump` writes; a file or its folder."""
    place = path / "iterations.csv" if path.is_dir() else path
    with place.open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream)
        needed = {"engine", "step", "kind", "tokens", "context"}
        if not needed <= set(rows.fieldnames or ()):
            lacking = ", ".join(sorted(needed - set(rows.fieldnames or ())))
            raise DataFileError(place, f"no iterations of a dump: lacks {lacking}", line=1)
        for (engine, _), same in groupby(rows, key=lambda row: (row["engine"], row["step"])):
            yield engine, tuple(_dumped(row) for row in same)


def _dumped(row: dict[str, str]) -> Work:
    tokens, context = round(float(row["tokens"])), round(float(row["context"] or 0))
    prefill = row["kind"] == "prefill" and tokens > 1
    return Work(context, tokens, _known(context, tokens, prefill))


def read_histogram(path: Path) -> dict[int, float]:
    """Batch sizes and how often each occurs, from a CSV of `batch,count`."""
    found: dict[int, float] = {}
    with path.open(encoding="utf-8-sig", newline="") as stream:
        for number, row in enumerate(csv.reader(stream), start=1):
            if number == 1 and [cell.strip() for cell in row[:2]] == ["batch", "count"]:
                continue
            try:
                batch, count = int(row[0]), float(row[1])
            except (ValueError, IndexError):
                raise DataFileError(path, f"expected batch,count, got {','.join(row)!r}", line=number) from None
            if batch < 1 or not 0 <= count < float("inf"):
                raise DataFileError(path, f"a batch is at least 1, its count finite, got {row}", line=number)
            found[batch] = found.get(batch, 0.0) + count
    if not sum(found.values()):
        raise DataFileError(path, "is empty: expected lines of batch,count")
    return found
