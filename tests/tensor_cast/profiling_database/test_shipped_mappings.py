"""The three Ascend mappings against what they answer for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support import hit, miss, row, source, write_table
from tensor_cast import LeafOp
from tensor_cast.performance_model.profiling_database.mapping import op_mapping

SHIPPED = op_mapping.SHIPPED_MAPPINGS / "ATLAS_800_A3_752T_128G_DIE/vllm_ascend"
VERSIONS = sorted(path.name for path in SHIPPED.iterdir())
OPERATOR = "tensor_cast.kv_rmsnorm_rope_cache.default"


def as_recorded(tokens: int, lora: int = 512, block: int = 128) -> LeafOp:
    """The seven tensors of a row, in the row's order."""
    shapes = [(tokens, 1, 1, 576), (lora,), (tokens, 1, 1, 64), (tokens, 1, 1, 64), (tokens,)]
    caches = [(10, block, 1, 64), (10, block, 1, lora)]
    dtypes = ["bf16"] * 4 + ["int64"] + ["bf16"] * 2
    return LeafOp.build(OPERATOR, list(zip([*shapes, *caches], dtypes, strict=True)))


@pytest.mark.parametrize("version", VERSIONS)
def test_latent_cache_writes_compare_every_input(tmp_path: Path, version: str) -> None:
    """Another lora rank or block size is another kernel launch: a miss, not the row that shares its first tensor."""
    shutil.copy(SHIPPED / version / "op_mapping.yaml", tmp_path)
    shapes = "100,1,1,576;512;100,1,1,64;100,1,1,64;100;10,128,1,64;10,128,1,512"
    dtypes = "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT64;DT_BF16;DT_BF16"
    write_table(tmp_path, "KvRmsNormRopeCache", [row(shapes, dtypes, 5.0)])
    data = source(tmp_path)
    assert hit(data.query(as_recorded(100))).latency_us == 5.0
    for other in (as_recorded(100, lora=448), as_recorded(100, block=16)):
        miss(data.query(other))


def test_there_are_three_versions() -> None:
    assert [name.partition("_")[0] for name in VERSIONS] == ["vllm0.13.0", "vllm0.15.0", "vllm0.18.0"]
