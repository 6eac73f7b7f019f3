"""What `kernels.yaml` says of kernels, and what is wrong in such a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensor_cast.errors import DataFileError
from tensor_cast.performance_model.profiling_database.mapping.kernel_traits import (
    KernelTraits,
    kernel_traits,
    read_kernel_traits,
)


@pytest.mark.parametrize(
    ("kernel", "traits"),
    [
        ("MatMulV2", KernelTraits(product=True, relaxed=True)),
        ("QuantBatchMatmulV3", KernelTraits(product=True, batched=True)),
        ("BatchMatMulNd", KernelTraits(path_product=True, batched=True)),
        ("DynamicQuant", KernelTraits(flattened=True, merged=True)),
        ("_triton_rope", KernelTraits(relaxed=True, recorded_as="rope")),
        ("Nobody", KernelTraits()),
    ],
)
def test_the_traits_of_a_kernel(kernel: str, traits: KernelTraits) -> None:
    assert kernel_traits(kernel) == traits


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            "kernels:\n  A: {product: true}\n  B: {products: true}\n",
            3,
            "B.products: True is no trait of product",
        ),
        ("kernels:\n  A: {product: 1}\n", 2, "kernels.A.product: 1 is no trait"),
        ("kernels:\n  A: {recorded_as: swapped}\n", 2, "'swapped' is no trait"),
        ("kernels:\n  A: true\n", 2, "expected traits, got True"),
        ("other: {}\n", 1, "expected one key, kernels"),
        ("kernels: {}\nmore: {}\n", 1, "expected one key, kernels"),
    ],
)
def test_a_file_of_other_things_is_refused(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = tmp_path / "kernels.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataFileError, match="kernels") as caught:
        read_kernel_traits(path)
    assert words in str(caught.value)
    assert caught.value.line == line
