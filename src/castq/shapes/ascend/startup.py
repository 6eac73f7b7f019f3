"""What start-up changes or warns of: the block size, and graphs that the largest decode does not fit.

Source: vllm_ascend/platform.py at 0.27.1rc1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["LargestDecode", "kv_block_size", "largest_decode"]

_BLOCK: Final = 128
_CEILING: Final = 512
_OWN_SIZES: Final = {"deepseek_v4": (32, 64, 128)}


@dataclass(frozen=True, slots=True)
class LargestDecode:
    """Tokens of the largest decode batch, and whether the largest graph is smaller."""

    tokens: int
    beyond_graphs: bool


def kv_block_size(
    asked: int | None, *, prefix_caching: bool, chunked_prefill: bool, hybrid: bool = False, model_type: str = ""
) -> int:
    """The block size in use: 128 unless the model keeps its own, or neither prefix caching nor chunking is on.

    DeepSeek-V4 may have 32, 64 or 128; its smallest stands for any other.
    """
    if asked is None:
        return _BLOCK
    own = _OWN_SIZES.get(model_type, ())
    if hybrid or asked in own or not (prefix_caching or chunked_prefill):
        return asked
    return own[0] if own else _BLOCK


def largest_decode(max_num_seqs: int, query_len: int, budget: int, largest_graph: int) -> LargestDecode:
    """What the vendor warns of: decodes that fall off the graphs.  Nothing is warned of without graphs.

    The count is at least the largest graph; without graphs it is the size that would be derived.
    """
    decodes = max_num_seqs * query_len
    if not largest_graph:
        return LargestDecode(min(decodes, _CEILING), False)
    tokens = min(max(decodes, largest_graph), budget)
    return LargestDecode(tokens, largest_graph < tokens)
