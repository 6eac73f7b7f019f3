"""Walking over the statements of a syntax tree."""

from __future__ import annotations

from collections.abc import Iterator

from serq.syntax import tree

__all__ = ["nested"]


def nested(body: tree.Body) -> Iterator[tree.Statement]:
    """Every statement of a body, outer ones first, in the order of the text."""
    waiting = list(reversed(body))
    while waiting:
        one = waiting.pop()
        yield one
        match one:
            case tree.HoldStatement() | tree.WhileStatement() | tree.ForkStatement():
                waiting.extend(reversed(one.body))
            case tree.IfStatement():
                waiting.extend(reversed((*one.then, *one.otherwise)))
            case _:
                pass
