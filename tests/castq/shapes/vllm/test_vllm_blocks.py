"""KV blocks: none is lost, none has two owners unless they share its content."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from castq.shapes.rbln.sub_blocks import SubBlockPool
from castq.shapes.vllm.blocks import BlockPool
from castq.shapes.vllm.requests import Arrival, Request


def request(name: str, prompt: int, *, shared: int = 0) -> Request:
    return Request(Arrival(name, prompt, 1, shared_group="g" if shared else None, shared_tokens=shared), 0)


def enter(pool: BlockPool, one: Request) -> list[int]:
    """Admit a request whole, and let the step run that computes all it knows."""
    hits = pool.hits(one)
    pool.hit_tokens(one, hits)
    pool.allocate(one, one.known, hits)
    compute(pool, one)
    return hits


def compute(pool: BlockPool, one: Request) -> None:
    one.computed = one.known
    if isinstance(pool, SubBlockPool):
        pool.enter(one)
        pool.let_go(pool.copies())


def has_room(pool: BlockPool, one: Request) -> bool:
    hits = pool.hits(one)
    pool.hit_tokens(one, hits)
    return pool.fits(one, one.known, hits)


def test_one_block_is_the_null_block_and_never_handed_out() -> None:
    pool = BlockPool(5, 16)
    assert pool.free == 4
    one = request("A", 64)
    enter(pool, one)
    assert one.blocks == [1, 2, 3, 4]
    assert pool.free == 0


def test_blocks_are_whole() -> None:
    pool = BlockPool(5, 16)
    assert [pool.needed(tokens) for tokens in (0, 1, 16, 17, 32)] == [0, 1, 1, 2, 2]


def test_room_counts_what_the_request_has() -> None:
    pool, one, other = BlockPool(5, 16), request("A", 40), request("B", 16)
    enter(pool, one)
    assert pool.fits(one, 64, [])
    assert not pool.fits(one, 65, [])
    assert pool.fits(other, 16, [])
    assert not pool.fits(other, 17, [])


def test_the_block_freed_longest_ago_is_handed_out_first_and_tails_before_heads() -> None:
    pool, one, other = BlockPool(5, 16), request("A", 32), request("B", 64)
    enter(pool, one)
    pool.release(one)
    enter(pool, other)
    assert other.blocks == [3, 4, 2, 1]


def test_hits_are_whole_blocks_and_never_the_last_known_token() -> None:
    pool = BlockPool(9, 16, prefix_caching=True)
    enter(pool, request("A", 64, shared=64))
    assert pool.hits(request("B", 64, shared=64)) == [1, 2, 3]
    assert pool.hits(request("C", 65, shared=64)) == [1, 2, 3, 4]
    assert pool.hits(request("D", 64, shared=40)) == [1, 2]
    assert pool.hits(request("E", 64)) == []


def test_without_prefix_caching_nothing_is_hit() -> None:
    pool = BlockPool(9, 16)
    enter(pool, request("A", 64, shared=64))
    assert pool.hits(request("B", 64, shared=64)) == []


def test_shared_blocks_come_back_with_their_last_user() -> None:
    pool = BlockPool(9, 16, prefix_caching=True)
    one, other = request("A", 64, shared=64), request("B", 64, shared=64)
    enter(pool, one)
    enter(pool, other)
    assert (one.blocks, other.blocks) == ([1, 2, 3, 4], [1, 2, 3, 5])
    pool.release(one)
    assert pool.free == 4
    pool.release(other)
    assert pool.free == 8


def test_hits_that_nobody_uses_take_room() -> None:
    pool, one, other = BlockPool(5, 16, prefix_caching=True), request("A", 64, shared=64), request("B", 65, shared=64)
    enter(pool, one)
    pool.release(one)
    hits = pool.hits(other)
    assert len(hits) == 4
    assert not pool.fits(other, 65, hits)
    assert pool.fits(other, 64, hits)


def test_content_is_forgotten_when_its_block_is_handed_out_anew() -> None:
    pool, one, other = BlockPool(5, 16, prefix_caching=True), request("A", 64, shared=64), request("B", 32)
    enter(pool, one)
    pool.release(one)
    enter(pool, other)
    assert other.blocks == [4, 3]
    assert pool.hits(request("C", 64, shared=64)) == [1, 2]


def test_sub_blocks_extend_a_hit_below_a_block() -> None:
    pool = SubBlockPool(9, 256, 128)
    enter(pool, request("A", 500, shared=499))
    again, short = request("B", 500, shared=499), request("C", 385, shared=385)
    assert [pool.hit_tokens(one, pool.hits(one)) for one in (again, short)] == [384, 384]


def test_sub_blocks_go_with_their_block() -> None:
    pool, one = SubBlockPool(3, 256, 128), request("A", 500, shared=499)
    enter(pool, one)
    pool.release(one)
    enter(pool, request("B", 256))
    again = request("C", 500, shared=499)
    assert pool.hit_tokens(again, pool.hits(again)) == 256


pools = st.one_of(
    st.builds(BlockPool, st.integers(2, 24), st.just(4), prefix_caching=st.booleans()),
    st.builds(SubBlockPool, st.integers(2, 24), st.just(4), st.just(2)),
)
moves = st.lists(st.tuples(st.sampled_from(["enter", "grow", "leave"]), st.integers(1, 40), st.integers(0, 9)))


@given(pools, moves)
def test_no_block_is_lost_and_none_shared_but_by_content(pool: BlockPool, moves: list[tuple[str, int, int]]) -> None:
    usable = pool.free
    held: list[Request] = []
    for at, (move, tokens, which) in enumerate(moves):
        one = held[which % len(held)] if held and move != "enter" else request(str(at), tokens, shared=tokens // 2)
        if move == "leave" and one in held:
            held.remove(one)
            pool.release(one)
        elif one in held and pool.fits(one, one.known + 1, []):
            one.known += 1
            pool.allocate(one, one.known, [])
            compute(pool, one)
        elif one not in held and has_room(pool, one):
            enter(pool, one)
            held.append(one)
        used = {block for one in held for block in one.blocks}
        assert len(used) + pool.free == usable
        assert 0 not in used
        for one in held:
            assert len(one.blocks) == len(set(one.blocks)) == pool.needed(one.known)
            for other in held:
                common = set(one.blocks) & set(other.blocks)
                shared = min(one.arrival.shared_tokens, other.arrival.shared_tokens) // pool.block_size
                assert other is one or common <= set(one.blocks[:shared])
