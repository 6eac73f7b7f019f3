"""The canonical leaf descriptor: one operator call as a value, used by exact lookup and by interpolation.

Nothing here needs a tensor library.
Source: RFC 3.2; docs/facts/leaf-operators.md, "One descriptor for lookup and interpolation".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import index
from typing import Final, Literal

from tensor_cast.dtypes import canonical_dtype, operand_dtype
from tensor_cast.errors import CastqError, InvalidValueError
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = ["KERNEL_TYPES", "AttrValue", "LeafOp", "Phase", "Requests"]

Phase = Literal["prefill", "decode", "mixed"]
AttrValue = str | int | float | bool | None | tuple[int, ...] | tuple[str, ...]

KERNEL_TYPES: Final = "kernel_types"  # attribute by which a child of a composite says which kernels run it, in order
_PHASES: Final = ("prefill", "decode", "mixed")


@dataclass(frozen=True, slots=True)
class Requests:
    """How the tokens of a call are spread over requests.

    `query_lens` are new tokens per request, `kv_lens` the total context per request including them.  None means "not
    known": whatever needs the values then refuses.  `cu_query_lens` gives the cumulative form used by profiling rows.
    """

    query_lens: tuple[int, ...] | None = None
    kv_lens: tuple[int, ...] | None = None
    explicit_phase: Phase | None = None
    block_table_shape: Shape | None = None

    def __post_init__(self) -> None:
        for name, values in (("query_lens", self.query_lens), ("kv_lens", self.kv_lens)):
            if values is not None and any(value < 0 for value in values):
                raise InvalidValueError(f"{name}: lengths must be >= 0, got {values}")
        if self.query_lens is not None and self.kv_lens is not None and len(self.query_lens) != len(self.kv_lens):
            raise InvalidValueError(
                f"query_lens has {len(self.query_lens)} requests but kv_lens has {len(self.kv_lens)}"
            )
        if self.explicit_phase is not None and self.explicit_phase not in _PHASES:
            raise InvalidValueError(f"phase {self.explicit_phase!r}: expected one of {', '.join(_PHASES)}")

    @property
    def count(self) -> int | None:
        """Number of requests, or None when neither vector is known."""
        known = self.kv_lens if self.kv_lens is not None else self.query_lens
        return None if known is None else len(known)

    @property
    def cu_query_lens(self) -> tuple[int, ...] | None:
        """Running totals of the query lengths, one per request (no leading zero)."""
        if self.query_lens is None:
            return None
        totals, total = [], 0
        for length in self.query_lens:
            total += length
            totals.append(total)
        return tuple(totals)

    @property
    def phase(self) -> Phase | None:
        """`prefill` iff every active request has query = context, `decode` iff every active query is 1, else `mixed`.

        A one-token query on a one-token context fits both; prefill wins.  An explicit phase wins over the lengths.
        """
        if self.explicit_phase is not None:
            return self.explicit_phase
        if self.query_lens is None or self.kv_lens is None:
            return None
        active = [(query, kv) for query, kv in zip(self.query_lens, self.kv_lens, strict=True) if query > 0]
        if not active:
            return None
        if all(query == kv for query, kv in active):
            return "prefill"
        return "decode" if all(query == 1 for query, _ in active) else "mixed"


@dataclass(frozen=True)
class LeafOp:
    """One leaf operator call: name, tensors in argument order, attributes, request grouping.

    `name` is `<namespace>.<op>.<overload>`; `inputs` are the tensors of the call in the operator's own argument order
    (0-d tensors included); `tensors` are those a kernel row can record (0-d left out), with their shapes in
    `tensor_shapes` and the dtypes they hold (see `operand_dtype`) in `tensor_dtypes`; `attrs` are the non-tensor
    arguments by name; `source` tells a direct call from the child of a decomposed operator (`child:<parent>#<index>`).
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...] = ()
    attrs: tuple[tuple[str, AttrValue], ...] = ()
    requests: Requests | None = None
    source: str = "direct"
    tensors: tuple[TensorSpec, ...] = field(init=False, repr=False, compare=False)
    tensor_shapes: tuple[Shape, ...] = field(init=False, repr=False, compare=False)
    tensor_dtypes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        if self.attrs:
            object.__setattr__(self, "attrs", _ordered(self.attrs))
        tensors = tuple([spec for spec in self.inputs if spec.shape])
        object.__setattr__(self, "tensors", tensors)
        object.__setattr__(self, "tensor_shapes", tuple([spec.shape for spec in tensors]))
        object.__setattr__(
            self, "tensor_dtypes", tuple([operand_dtype(self.name, spec.role, spec.dtype) for spec in tensors])
        )
        key = (self.name, self.inputs, self.outputs, self.attrs, self.requests, self.source)
        try:
            object.__setattr__(self, "_hash", hash(key))
        except TypeError as error:
            raise InvalidValueError(f"{self.name}: tensors, attributes and lengths must be tuples ({error})") from None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def attributes(self) -> Mapping[str, AttrValue]:
        return dict(self.attrs)

    @cached_property
    def _by_role(self) -> Mapping[str, TensorSpec]:
        found: dict[str, TensorSpec] = {}
        for spec in self.inputs:
            if spec.role:
                found.setdefault(spec.role, spec)
        return found

    @property
    def pinned_kernels(self) -> AttrValue:
        """The kernels that a parent says run this leaf, or None."""
        return self.attributes.get(KERNEL_TYPES) if self.attrs else None

    def role(self, name: str) -> TensorSpec | None:
        """The first input that fills argument `name`, or None."""
        return self._by_role.get(name)

    def roles(self, name: str) -> tuple[TensorSpec, ...]:
        """Every input that fills argument `name` (a list argument has several)."""
        return tuple(spec for spec in self.inputs if spec.role == name)

    def __iter__(self) -> Iterator[TensorSpec]:
        return iter(self.inputs)

    @classmethod
    def build(
        cls,
        name: str,
        inputs: object,
        outputs: object = (),
        attrs: Mapping[str, AttrValue] | None = None,
        requests: Requests | None = None,
        source: str = "direct",
    ) -> LeafOp:
        """A leaf from plain shapes and dtypes, roles filled in from the signature table.

        Each tensor is a `TensorSpec`, a `(shape, dtype)` pair or `(shape, dtype, format)`.  Raises InvalidValueError or
        UnknownNameError naming the tensor that is wrong.
        """
        from tensor_cast.operators.signatures import assign_roles

        specs = tuple(_as_spec(item, f"inputs[{i}]") for i, item in enumerate(_items(inputs, "inputs")))
        outs = tuple(_as_spec(item, f"outputs[{i}]") for i, item in enumerate(_items(outputs, "outputs")))
        return cls(name, assign_roles(name, specs), outs, tuple((attrs or {}).items()), requests, source)


def _ordered(attrs: Mapping[str, AttrValue] | tuple[tuple[str, AttrValue], ...]) -> tuple[tuple[str, AttrValue], ...]:
    """Attributes sorted by name, lists as tuples."""
    items = attrs.items() if isinstance(attrs, Mapping) else attrs
    return tuple(sorted(((k, tuple(v) if isinstance(v, list) else v) for k, v in items), key=lambda pair: pair[0]))


def _items(value: object, where: str) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidValueError(f"{where}: expected a list of tensors, got {type(value).__name__}")
    return tuple(value)


def _as_spec(item: object, where: str) -> TensorSpec:
    if isinstance(item, TensorSpec):
        return item
    if not isinstance(item, list | tuple) or len(item) not in (2, 3):
        raise InvalidValueError(f"{where}: expected (shape, dtype) or (shape, dtype, format), got {item!r}")
    shape, dtype, *rest = item
    try:
        dims = tuple(dim if isinstance(dim, bool) else index(dim) for dim in shape)
    except TypeError:
        raise InvalidValueError(f"{where}: shape {shape!r} is not a list of integers") from None
    try:
        return TensorSpec(dims, canonical_dtype(str(dtype)), rest[0] if rest else "ND")
    except CastqError as error:
        raise type(error)(f"{where}: {error}") from None
