"""How the products of each quantisation hold their weights and scales.

Source: docs/facts/leaf-operators.md "Products and quantisation".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from tensor_cast.operators.build.call import BF16, tensor
from tensor_cast.operators.build.sizes import multiple, one_of
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = ["Precision", "Quant", "precision"]

Quant = Literal["plain", "w8a8", "int4", "fp8", "mxfp4"]


@dataclass(frozen=True, slots=True)
class Precision:
    """Dtypes of activation, weight and scales; `packed`: two values of K in one element of the weight; `group`: values
    of K that share a scale (None: a whole row or column); `made`: the output's dtype unless one is asked for (None:
    the activation's).
    """

    suffix: str
    activation: str
    stored: str
    scale: str | None = None
    packed: bool = False
    group: int | None = None
    made: str | None = None

    def weight(self, k: int, n: int, *lead: int) -> TensorSpec:
        """`(K, N)`, or `(K/2, N)` packed; `lead` goes before."""
        if self.packed:
            multiple(2, "two values share an element", k=k)
        return tensor(self.stored, *lead, k // 2 if self.packed else k, n)

    def weight_scale(self, k: int, n: int, *lead: int) -> TensorSpec | None:
        """`(N)`, or `(N, groups of K)`."""
        return None if self.scale is None else tensor(self.scale, *lead, n, *self._groups(k))

    def activation_scale(self, rows: int, k: int) -> TensorSpec | None:
        """`(M, 1)`, or `(M, groups of K)`."""
        return None if self.scale is None else tensor(self.scale, rows, *(self._groups(k) or (1,)))

    def _groups(self, k: int) -> Shape:
        return () if self.group is None else (-(-k // self.group),)


_KNOWN: Final[Mapping[str, Precision]] = MappingProxyType(
    {
        "plain": Precision("", BF16, BF16),
        "w8a8": Precision("_quant", "int8", "int8", "float32"),
        "int4": Precision("_quant_int4", "int8", "int8", "float32", packed=True),
        "fp8": Precision("_fp8", "float8_e4m3fn", "float8_e4m3fn", "float32", made="float16"),
        "mxfp4": Precision("_mxfp4", "float4", "float4", "float8_e8m0fnu", group=32, made="float16"),
    }
)


def precision(quant: Quant) -> Precision:
    """The precision of a quantisation subtype; refuses another word."""
    one_of(_KNOWN, quant=quant)
    return _KNOWN[quant]
