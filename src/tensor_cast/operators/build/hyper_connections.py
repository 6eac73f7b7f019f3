"""The hyper-connections of DeepSeek-V4: hidden states in `hc_mult` copies, mixed before and after each block.

B sequences of S tokens, Hc = `hc_mult`.  Mixing weights are float32, as the published checkpoints hold them.
Source: docs/facts/leaf-operators.md "Arguments"; shapes of scale and base from the published model.
"""

from __future__ import annotations

from tensor_cast.operators.build.call import BF16, call, tensor
from tensor_cast.operators.build.sizes import positive
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec

__all__ = ["hc_head", "hc_post", "hc_pre_inv_rms", "hc_pre_sinkhorn"]

_MIX = "float32"


def hc_pre_inv_rms(tokens: int, hidden: int, *, hc_mult: int, batch: int = 1, dtype: str = BF16) -> LeafOp:
    """`(B, S, Hc, H)` to one float32 factor a token, `(B, S, 1)`."""
    x = _copies(tokens, hidden, hc_mult, batch, dtype)
    return call("hc_pre_inv_rms", {"x": x}, (tensor(_MIX, batch, tokens, 1),), hc_mult=hc_mult)


def hc_pre_sinkhorn(
    tokens: int,
    hidden: int,
    *,
    hc_mult: int,
    sinkhorn_iters: int = 1,
    hc_eps: float = 1e-6,
    batch: int = 1,
    dtype: str = BF16,
) -> LeafOp:
    """Mixing logits `(B, S, (2+Hc)*Hc)` and the copies to the block's input `(B, S, H)`, the weights `(B, S, Hc)` and
    the combination `(B, S, Hc, Hc)` that follow it.
    """
    positive(sinkhorn_iters=sinkhorn_iters)
    copies, mixes = _copies(tokens, hidden, hc_mult, batch, dtype), (2 + hc_mult) * hc_mult
    inputs = {
        "x": tensor(_MIX, batch, tokens, mixes),
        "hidden": copies,
        "hc_scale": tensor(_MIX, 3),
        "hc_base": tensor(_MIX, mixes),
    }
    outputs = (tensor(dtype, batch, tokens, hidden), *_weights(tokens, hc_mult, batch))
    return call("hc_pre_sinkhorn", inputs, outputs, hc_mult=hc_mult, sinkhorn_iters=sinkhorn_iters, hc_eps=hc_eps)


def hc_post(
    tokens: int, hidden: int, *, hc_mult: int, weighted: bool = True, batch: int = 1, dtype: str = BF16
) -> LeafOp:
    """The block's output `(B, S, H)` back into the copies `(B, S, Hc, H)`; without `weighted` both are absent."""
    residual = _copies(tokens, hidden, hc_mult, batch, dtype)
    weight, combine = _weights(tokens, hc_mult, batch) if weighted else (None, None)
    inputs = {
        "x": tensor(dtype, batch, tokens, hidden),
        "residual": residual,
        "hc_weight": weight,
        "hc_combine": combine,
    }
    return call("hc_post", inputs, (residual,), hc_mult=hc_mult)


def hc_head(
    tokens: int, hidden: int, *, hc_mult: int, hc_eps: float = 1e-6, batch: int = 1, dtype: str = BF16
) -> LeafOp:
    """The copies `(B, S, Hc, H)` to the final hidden states `(B, S, H)`."""
    x = _copies(tokens, hidden, hc_mult, batch, dtype)
    inputs = {
        "x": x,
        "fn": tensor(_MIX, hc_mult, hc_mult * hidden),
        "scale": tensor(_MIX, 1),
        "base": tensor(_MIX, hc_mult),
    }
    return call("hc_head", inputs, (tensor(dtype, batch, tokens, hidden),), hc_mult=hc_mult, hc_eps=hc_eps)


def _copies(tokens: int, hidden: int, hc_mult: int, batch: int, dtype: str) -> TensorSpec:
    positive(tokens=tokens, hidden=hidden, hc_mult=hc_mult, batch=batch)
    return tensor(dtype, batch, tokens, hc_mult, hidden)


def _weights(tokens: int, hc_mult: int, batch: int) -> tuple[TensorSpec, TensorSpec]:
    return tensor(_MIX, batch, tokens, hc_mult), tensor(_MIX, batch, tokens, hc_mult, hc_mult)
