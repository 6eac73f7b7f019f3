"""Short requests first: three lanes in place of the waiting queue.

Source: vllm_ascend/core, short_request_first_config, at 0.27.1rc1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from castq.shapes.vllm.requests import Request
from castq.shapes.vllm.waiting import take_from

__all__ = ["ShortFirstQueue"]


class ShortFirstQueue:
    """Requests that have begun first, then short prompts, then long ones; each lane first come, first served.

    A long head that has waited `long_max_wait_ms` goes before the short ones (0: never).  Who was looked at stays the
    head until it is taken.  `now` tells the time in seconds, as the vendor's clock does.
    """

    def __init__(self, now: Callable[[], float], *, threshold: int = 256, long_max_wait_ms: float = 0.0) -> None:
        self._now, self._threshold, self._limit = now, threshold, long_max_wait_ms
        self._begun: deque[Request] = deque()
        self._short: deque[Request] = deque()
        self._long: deque[Request] = deque()
        self._since: dict[str, float] = {}
        self._pinned: deque[Request] | None = None

    def __len__(self) -> int:
        return len(self._begun) + len(self._short) + len(self._long)

    def add(self, request: Request) -> None:
        self._since[request.id] = self._now()
        lane = self._short if request.arrival.prompt <= self._threshold else self._long
        lane.append(request)

    def put_back(self, request: Request) -> None:
        self._begun.appendleft(request)
        self._pinned = None

    def head(self) -> Request | None:
        if self._pinned is None:
            self._pinned = self._lane() or None
        return self._pinned[0] if self._pinned else None

    def pop(self) -> Request:
        lane = self._pinned or self._lane()
        self._pinned = None
        return lane.popleft()

    def take_out(self, request: Request) -> bool:
        self._pinned = None
        return any(take_from(lane, request) for lane in (self._begun, self._short, self._long))

    def _lane(self) -> deque[Request]:
        if self._begun:
            return self._begun
        if self._short and not self._overdue():
            return self._short
        return self._long

    def _overdue(self) -> bool:
        """Whether the long head has waited too long."""
        if not self._limit or not self._long:
            return False
        return (self._now() - self._since[self._long[0].id]) * 1000 >= self._limit
