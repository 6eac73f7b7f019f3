"""Queues of waiting requests: who is next to be admitted."""

from __future__ import annotations

from collections import deque
from collections.abc import MutableSequence
from typing import Protocol

from castq.shapes.vllm.requests import Request

__all__ = ["FcfsQueue", "PriorityQueue", "WaitingQueue", "take_from"]


class WaitingQueue(Protocol):
    """What a scheduler asks of its queue."""

    def __len__(self) -> int: ...

    def add(self, request: Request) -> None:
        """A new request."""

    def put_back(self, request: Request) -> None:
        """A preempted request."""

    def head(self) -> Request | None:
        """The next request, or None where nobody may be admitted now."""

    def pop(self) -> Request:
        """Take the request that `head` gave."""

    def take_out(self, request: Request) -> bool:
        """Take a request from wherever it stands; False where it does not wait."""


class FcfsQueue:
    """First come, first served; the preempted go to the front."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: Request) -> None:
        self._requests.append(request)

    def put_back(self, request: Request) -> None:
        self._requests.appendleft(request)

    def head(self) -> Request | None:
        return self._requests[0] if self._requests else None

    def pop(self) -> Request:
        return self._requests.popleft()

    def take_out(self, request: Request) -> bool:
        return take_from(self._requests, request)


class PriorityQueue:
    """The lowest priority number first, then the earliest; O(waiting) to find."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: Request) -> None:
        self._requests.append(request)

    put_back = add

    def head(self) -> Request | None:
        return min(self._requests, key=lambda request: request.rank) if self._requests else None

    def pop(self) -> Request:
        first = min(self._requests, key=lambda request: request.rank)
        self._requests.remove(first)
        return first

    def take_out(self, request: Request) -> bool:
        return take_from(self._requests, request)


def take_from(waiting: MutableSequence[Request], request: Request) -> bool:
    """Take a request from a row of them; False where it is not in it."""
    if request not in waiting:
        return False
    waiting.remove(request)
    return True
