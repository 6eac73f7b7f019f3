"""Which form of latent attention a call takes: decode absorbs the projections, prefill expands keys and values.

Unlike the base's own decomposition nothing is assumed: a call whose phase cannot be told is refused.
Source: docs/facts/leaf-operators.md, "Phase of a composite".
"""

from __future__ import annotations

from typing import Final, Literal

from tensor_cast.operators.composites.leaf_parts import LackingError
from tensor_cast.operators.leaf import AttrValue, LeafOp, Requests

__all__ = ["Form", "attention_form"]

Form = Literal["prefill", "decode"]

_FLAGS: Final = {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}
_ONE_PHASE: Final = "one phase for all requests"


def attention_form(leaf: LeafOp) -> Form:
    """`decode` or `prefill`, from the phase given, the per-request decode flags, or the lengths, in this order.

    Raises LackingError for a batch of both and where nothing tells.
    """
    requests = leaf.requests
    given: AttrValue = requests.explicit_phase if requests is not None else None
    given = given or leaf.attributes.get("phase")
    if given == "decode":
        return "decode"
    if given == "prefill":
        return "prefill"
    flags = leaf.attributes.get("is_decode_values")
    if flags is not None:
        return _from_flags(flags)
    return _from_lengths(requests)


def _from_flags(flags: AttrValue) -> Form:
    values = {_FLAGS.get(str(flag)) for flag in (flags if isinstance(flags, tuple) else (flags,))}
    if values == {True}:
        return "decode"
    if values == {False}:
        return "prefill"
    raise LackingError(f"is_decode_values with {_ONE_PHASE}")


def _from_lengths(requests: Requests | None) -> Form:
    """Per active request: decode is one token on a longer (or unknown) context; one on one fits either."""
    if requests is None or requests.query_lens is None:
        raise LackingError("phase or query_lens")
    contexts = requests.kv_lens or (None,) * len(requests.query_lens)
    active = [pair for pair in zip(requests.query_lens, contexts, strict=True) if pair[0] > 0]
    whole = [query == context == 1 for query, context in active]
    decodes = {query == 1 for (query, _), fits_both in zip(active, whole, strict=True) if not fits_both}
    if not active or len(decodes) > 1:
        raise LackingError(_ONE_PHASE if active else "a request with query tokens")
    return "decode" if decodes == {True} else "prefill"
