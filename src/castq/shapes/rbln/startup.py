"""What start-up refuses, and the granularity of prefix hits.

Source: vllm_rbln/platform.py, vllm_rbln/config.py at 0.11.3a21.
"""

from __future__ import annotations

from dataclasses import dataclass

from castq.shapes.rbln.buckets import decode_ceiling
from castq.shapes.refusals import ShapeError

__all__ = ["Slots", "check_startup", "sub_block_size"]


@dataclass(frozen=True, slots=True)
class Slots:
    """Decodes that one step can hold, and slots that no step can use."""

    decode_ceiling: int
    unused: int


def check_startup(
    max_num_seqs: int,
    max_num_batched_tokens: int,
    *,
    data_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    expert_parallel: bool = False,
    moe_token_mask: bool = True,
    chunked_prefill: bool = True,
    lora: bool = False,
) -> Slots:
    """The slots of an accepted configuration; raises ShapeError with the vendor's first refusal."""
    if lora:
        raise ShapeError("lora_unsupported", "LoRA is not supported on RBLN")
    if not chunked_prefill:
        raise ShapeError("chunked_prefill_required", "chunked prefill must be on")
    if data_parallel_size > 1 and max_num_batched_tokens % max_num_seqs:
        raise ShapeError(
            "dp_budget_not_divisible_by_slots",
            f"max_num_batched_tokens {max_num_batched_tokens} is no multiple of max_num_seqs {max_num_seqs}, which "
            "data parallelism needs",
        )
    if (data_parallel_size > 1 or expert_parallel) and not moe_token_mask:
        raise ShapeError("moe_mask_required", "data or expert parallelism needs the MoE token mask")
    if max_num_seqs < pipeline_parallel_size:
        raise ShapeError(
            "slots_below_pp",
            f"max_num_seqs {max_num_seqs} is below pipeline_parallel_size {pipeline_parallel_size}",
        )
    ceiling = decode_ceiling(max_num_seqs, pipeline_parallel_size)
    return Slots(ceiling, max_num_seqs - ceiling * pipeline_parallel_size)


def sub_block_size(
    block_size: int,
    width: int,
    asked: int | None,
    *,
    prefix_caching: bool = True,
    sub_block_cache: bool = True,
    multi_block_store: bool = False,
) -> int | None:
    """Tokens by which a prefix hit is extended below a block; None where hits are whole blocks.

    Without a size asked for it is the prefill width, where a block holds several.  Raises ShapeError for a size that
    the vendor refuses.
    """
    if not (prefix_caching and sub_block_cache):
        if asked is not None:
            raise ShapeError(
                "sub_block_requested_but_disabled",
                f"sub_block_size {asked} needs prefix caching and the sub-block cache, one of which is off",
            )
        return None
    if asked is None:
        return width if block_size > width and block_size % width == 0 else None
    if not asked <= width <= block_size:
        raise ShapeError(
            "sub_block_order_violated",
            f"sub_block_size {asked} <= max_num_batched_tokens {width} <= block_size {block_size} does not hold",
        )
    if asked == block_size or block_size % asked:
        raise ShapeError(
            "sub_block_ineligible_spec",
            f"sub_block_size {asked} must divide block_size {block_size} and be smaller than it",
        )
    if asked < width and not multi_block_store:
        raise ShapeError(
            "sub_block_needs_multi_block_store",
            f"sub_block_size {asked} below the width {width} needs a device that stores several blocks at once",
        )
    return asked
