"""vLLM V1's scheduler: running requests first, then admissions, in one budget of tokens.

Source: vllm/v1/core/sched/scheduler.py at 0.27.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.blocks import BlockPool
from castq.shapes.vllm.requests import Request
from castq.shapes.vllm.waiting import FcfsQueue, PriorityQueue, WaitingQueue

__all__ = ["POLICIES", "Batch", "Scheduler", "SchedulerSettings", "Share"]

POLICIES = ("fcfs", "priority")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """The settings a scheduler reads, with the vendor's defaults; `num_blocks` counts the null block."""

    max_num_seqs: int
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    num_blocks: int
    chunked_prefill: bool = True
    policy: str = "fcfs"
    long_prefill_token_threshold: int = 0
    reserve_full_length: bool = True
    prefix_caching: bool = False
    max_model_len: int | None = None
    pipeline_parallel_size: int = 1

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "pipeline_parallel_size"):
            if getattr(self, name) < 1:
                raise ShapeError("not_positive", f"{name} {getattr(self, name)}: at least 1")
        if self.num_blocks < 2:
            raise ShapeError("no_blocks", f"num_blocks {self.num_blocks}: at least 2, one is the null block")
        if self.policy not in POLICIES:
            raise ShapeError("unknown_policy", f"policy {self.policy!r}: one of {', '.join(POLICIES)}")
        longest = self.max_model_len
        if not self.chunked_prefill and longest is not None and self.max_num_batched_tokens < longest:
            raise ShapeError(
                "chunking_off_needs_budget_at_least_max_model_len",
                f"max_num_batched_tokens {self.max_num_batched_tokens} is below max_model_len {longest}, and chunked "
                "prefill is off",
                raised="ValidationError",
            )


@dataclass(frozen=True, slots=True)
class Share:
    """What a step gives a request: the tokens `[start, start + tokens)`; `samples` says that a token comes out."""

    request: Request
    start: int
    tokens: int
    samples: bool
    prefill: bool


@dataclass(slots=True)
class Batch:
    """A step being formed: whom it serves, whom it preempted, and the tokens left."""

    left: int
    shares: list[Share] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)

    def give(self, request: Request, tokens: int) -> None:
        samples = request.computed + tokens >= request.known
        self.shares.append(Share(request, request.computed, tokens, samples, request.is_prefill))
        self.left -= tokens

    def take_back(self, request: Request) -> None:
        """A request that loses its blocks in the step that had served it."""
        for share in self.shares:
            if share.request is request:
                self.left += share.tokens
                self.shares.remove(share)
                return


class Scheduler:
    """Selects the requests and tokens of each step; `queue` replaces the order of waiting requests."""

    def __init__(self, settings: SchedulerSettings, queue: WaitingQueue | None = None) -> None:
        self.settings = settings
        self.pool = self._make_pool()
        fcfs = settings.policy == "fcfs"
        self.waiting: WaitingQueue = queue if queue is not None else FcfsQueue() if fcfs else PriorityQueue()
        self.running: list[Request] = []

    def _make_pool(self) -> BlockPool:
        given = self.settings
        return BlockPool(given.num_blocks, given.block_size, prefix_caching=given.prefix_caching)

    @property
    def busy(self) -> bool:
        return bool(self.running or len(self.waiting))

    def schedule(self) -> Batch:
        """The next step; computed tokens advance now, outputs come with `complete`."""
        batch = Batch(self.settings.max_num_batched_tokens)
        self.serve_running(batch)
        if not batch.preempted:
            self.admit(batch)
        for share in batch.shares:
            share.request.computed += share.tokens
        return batch

    def complete(self, batch: Batch) -> list[Request]:
        """The step's outputs arrive: the requests that end with it, their blocks free again."""
        ended = []
        for share in batch.shares:
            request = share.request
            if not share.samples:
                continue
            request.known += 1
            request.generated += 1
            if self._has_ended(request) and self._leaves(request):
                ended.append(request)
        return ended

    def _has_ended(self, request: Request) -> bool:
        """All its tokens are generated, or it is as long as a sequence may be."""
        longest = self.settings.max_model_len
        return request.generated >= request.arrival.output or (longest is not None and request.known >= longest)

    def _leaves(self, request: Request) -> bool:
        """Take a request out; False where it is out already.  It may wait again: preempted with its last token in
        flight.
        """
        if request not in self.running:
            return self.waiting.take_out(request)
        self.running.remove(request)
        self.pool.release(request)
        return True

    # --- running requests ---------------------------------------------------------------------------------------------

    def serve_running(self, batch: Batch) -> None:
        """Running requests in their order; one that wants nothing is passed over."""
        at = 0
        while at < len(self.running) and batch.left > 0:
            request = self.running[at]
            tokens = self.wanted(request, batch.left)
            if tokens <= 0:
                at += 1
                continue
            if not self.make_room(request, tokens, batch):
                return
            batch.give(request, tokens)
            at = self.running.index(request) + 1

    def wanted(self, request: Request, left: int) -> int:
        """Tokens a running request is given: what it wants, clipped to threshold, budget and the longest sequence."""
        tokens = min(self.clipped(request.known - request.computed), left)
        longest = self.settings.max_model_len
        return tokens if longest is None else min(tokens, longest - 1 - request.computed)

    def clipped(self, tokens: int) -> int:
        threshold = self.settings.long_prefill_token_threshold
        return threshold if 0 < threshold < tokens else tokens

    def make_room(self, request: Request, tokens: int, batch: Batch) -> bool:
        """Blocks for a running request, preempting others for it; False when it is preempted itself."""
        while not self.pool.fits(request, request.computed + tokens, []):
            victim = self._victim(batch)
            batch.preempted.append(victim)
            if victim is request:
                return False
        self.pool.allocate(request, request.computed + tokens, [])
        return True

    def _victim(self, batch: Batch) -> Request:
        """The request preempted next, back in the queue with its tokens and without blocks."""
        if self.settings.policy == "priority":
            victim = max(self.running, key=lambda one: one.rank)
            batch.take_back(victim)
        else:
            victim = self.running[-1]
        self.running.remove(victim)
        self.pool.release(victim)
        victim.computed = 0
        victim.preempted += 1
        self.waiting.put_back(victim)
        return victim

    # --- admission ----------------------------------------------------------------------------------------------------

    def admit(self, batch: Batch) -> None:
        """Waiting requests while slots, tokens and blocks last; a head that does not fit is not passed over."""
        while batch.left > 0 and len(self.running) < self.settings.max_num_seqs:
            request = self.waiting.head()
            if request is None:
                return
            hits = self.pool.hits(request)
            request.computed = self.pool.hit_tokens(request, hits)
            tokens = self.clipped(request.known - request.computed)
            too_long = not self.settings.chunked_prefill and tokens > batch.left
            tokens = min(tokens, batch.left)
            if too_long or not self.has_room(request, tokens, hits):
                request.computed = 0
                return
            self.enter(request, tokens, hits, batch)

    def has_room(self, request: Request, tokens: int, hits: list[int]) -> bool:
        """Whether the first chunk fits, and by default the whole known length.

        A request longer than all blocks waits for ever, rather than preempt itself for ever.
        """
        if self.pool.needed(request.known) >= self.settings.num_blocks:
            return False
        length = request.known if self.settings.reserve_full_length else request.computed + tokens
        return self.pool.fits(request, length, hits)

    def enter(self, request: Request, tokens: int, hits: list[int], batch: Batch) -> None:
        """The head of the queue begins to run."""
        self.waiting.pop()
        self.pool.allocate(request, request.computed + tokens, hits)
        self.running.append(request)
        batch.give(request, tokens)
