"""Scheduling steps as one line of text each: `A:p64 B:d1*`, with p for prefill, d for decode, * where it samples."""

from __future__ import annotations

from collections.abc import Iterable

from castq.shapes.vllm.replay import Step

__all__ = ["spelled", "starts_of", "table"]


def spelled(step: Step) -> str:
    """The shares of a step, in the order they were given."""
    return " ".join(
        f"{share.request.id}:{'p' if share.prefill else 'd'}{share.tokens}{'*' if share.samples else ''}"
        for share in step.shares
    )


def table(steps: Iterable[Step]) -> list[str]:
    """One line for each step."""
    return [spelled(step) for step in steps]


def starts_of(steps: Iterable[Step]) -> list[tuple[str, int]]:
    """Every request with the computed tokens of its first step."""
    found: dict[str, int] = {}
    for step in steps:
        for share in step.shares:
            found.setdefault(share.request.id, share.start)
    return list(found.items())
