"""What sizes alone describe is what the demo's own rows answer: constructors and measured rows name the same call."""

from __future__ import annotations

import pytest

from support import DEVICE, hit, miss
from tensor_cast import InterpolatingDataSource, LeafOp, ParallelConfig, ProfilingDataSource, Requests, open_database
from tensor_cast.demo import write_demo_database
from tensor_cast.devices import device_profile
from tensor_cast.operators import build
from tensor_cast.operators.build import AttentionSizes, ExpertSizes, LatentSizes
from tensor_cast.operators.records import with_attrs
from tensor_cast.performance_model.profiling_database.data_source import QuerySource

RANKS = range(16)
SELECTING = Requests((2,) * 8, (8192,) * 8, block_table_shape=(8, 1584))  # 8192 // 4 entries to choose 2048 from
SHORT = Requests((2,) * 8, (3000,) * 8, block_table_shape=(8, 1584))
DECODES = Requests((1,) * 16, (1024,) * 16)
LATENT = AttentionSizes(16, 1, 512, blocks=12307, layout="BNSD")
# leaf -> kernel whose row is meant
MEASURED: tuple[tuple[LeafOp, str], ...] = (
    (build.mm(16, 5120, 768), "MatMulV2"),
    (build.mm(1024, 7168, 9216), "MatMulV3"),
    (build.bmm(8, 16, 128, 512), "BatchMatMulV2"),
    (build.static_quant_linear(16, 5120, 1024, out_dtype="bf16"), "QuantBatchMatmulV3"),
    (build.attention(16, AttentionSizes(32, 8, 128, blocks=12307), DECODES), "FusedInferAttentionScore"),
    (
        build.attention(128, AttentionSizes(4, 1, 128, 12307, layout="TND"), Requests((128,), (512,))),
        "FusedInferAttentionScore",
    ),
    (with_attrs(build.attention(16, LATENT, DECODES), sparse_mode=0), "FusedInferAttentionScore"),
    (build.concat_and_cache_mla(16, 512, 64, blocks=1766), "accepted_miss"),
    (build.apply_rope(16, 32, 8, 128), "_triton_rope"),
    (build.scatter_nd_update_mla(16, 128, blocks=1766), "ScatterNdUpdate"),
    (build.scatter_nd_update_mla(16, 512, blocks=1766), "ScatterNdUpdateAiCore"),
    (build.quant_lightning_indexer(16, 32, topk_limit=2048, blocks=1766, requests=SELECTING), "LightningIndexer"),
    (
        build.sparse_attn_sharedkv(16, 4, index_width=2048, blocks=1766, prefill=False, requests=SHORT),
        "SparseFlashAttention",
    ),
    (
        build.sparse_attn_sharedkv(
            1024,
            4,
            index_width=2048,
            blocks=1766,
            prefill=True,
            requests=Requests((1024,), (1024,), block_table_shape=(1, 1584)),
        ),
        "SparseFlashAttention",
    ),
    (build.rms_norm((1, 16), 5120), "RmsNorm"),
    (build.rms_norm((1, 16, 8), 128), "RmsNorm"),
    (build.add_rms_norm(16, 5120), "AddRmsNorm"),
    (build.add_rms_norm((1, 16), 5120, residual_tokens=16, residual_out=True), "AddRmsNormBias"),
    (build.layer_norm(16, 7168, dtype="fp32"), "LayerNormV3"),
    (build.swiglu((1, 16), 2048), "SwiGlu"),
    (build.quantize(16, 1536), "AscendQuantV2"),
    (build.dynamic_quantize(16, 5120), "DynamicQuant"),
    (build.dynamic_quantize(16, 5120, form="asymmetric"), "DynamicQuant"),
    (build.cast((16, 5120), "bf16", "fp32"), "Cast"),
    (build.embedding(16, 151936, 5120), "GatherV2"),
    (build.cat([(16, 5120), (128, 5120)]), "ConcatD"),
    (build.cat([(16, 512), (16, 64)], dim=-1, namespace="aten"), "ConcatD"),
    (build.add((16, 5120), (16, 5120)), "Add"),
    (build.mul((16, 5120), (16, 1)), "Mul"),
    (
        build.dispatch_ffn_combine(16, ExpertSizes(16, 7168, 2048, 8), rank_group=RANKS, quant="w8a8"),
        "DispatchFFNCombine",
    ),
    (build.init_routing_v2(16, 7168, 8), "MoeTokenPermute"),
    (build.unpermute_tokens(16, 7168, 8), "MoeTokenUnpermute"),
    (build.moe_gating_top_k_softmax(16, 256, 8), "MoeGatingTopK"),
    (build.all_reduce((16, 64), rank_group=RANKS), "hcom_allReduce_"),
    (build.all_gather((16, 64), rank_group=RANKS), "hcom_allGather_"),
    (build.reduce_scatter((16, 64), rank_group=RANKS), "hcom_reduceScatter_"),
    (build.all_to_all((16, 64), rank_group=RANKS), "hcom_alltoallv_"),
    (build.matmul_all_reduce(16, 1024, 5120, rank_group=RANKS), "MatMulV2"),
    (build.static_quant_linear(16, 2048, 7168, rank_group=RANKS, out_dtype="bf16"), "QuantBatchMatmulV3"),
    (
        build.multihead_latent_attention(16, LatentSizes(16, 128, 64, 512, 128, 1536), DECODES, blocks=12307),
        "BatchMatMulV2,FusedInferAttentionScore,TransposeBatchMatMul",
    ),
)
REFUSED = (
    build.fp8_linear(16, 5120, 1024),  # no FP8 rows
    build.static_quant_linear(16, 5120, 1024, packed=True),  # no INT4 rows
    build.static_quant_linear(16, 5120, 1000),  # no such width
    build.quant_lightning_indexer(16, 32, topk_limit=2048, blocks=1766, requests=SHORT),  # 750 of 3000 // 4
    build.dynamic_quantize(16, 5120, dims=()),  # one scale in all
    build.dispatch_ffn_combine(16, ExpertSizes(16, 7168, 2048, 8), rank_group=RANKS),  # unquantised experts
    build.fused_rope(16, 32, 8, 128),  # no kernel known
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> InterpolatingDataSource:
    report = write_demo_database(tmp_path_factory.mktemp("demo") / "exact", noise=0.0, versions=("0.18",))
    layout = ParallelConfig(expert_parallel_size=16)
    database = open_database(report.databases[0].path)
    return InterpolatingDataSource(ProfilingDataSource(database, device_profile(DEVICE), layout))


@pytest.mark.parametrize(("leaf", "kernel"), MEASURED, ids=[leaf.name for leaf, _ in MEASURED])
def test_the_demo_measured_it(demo: InterpolatingDataSource, leaf: LeafOp, kernel: str) -> None:
    answer = hit(demo.query(leaf))
    assert answer.source is QuerySource.MEASURED
    assert answer.details["kernel_type"] == kernel


@pytest.mark.parametrize("leaf", REFUSED, ids=[leaf.name for leaf in REFUSED])
def test_the_demo_never_measured_it(demo: InterpolatingDataSource, leaf: LeafOp) -> None:
    assert miss(demo.query(leaf)).reason


def test_keys_first_is_the_order_of_the_rows(demo: InterpolatingDataSource) -> None:
    """The row of 32 heads beside 8 is 3.4886 us; the declaration's order would be matched with other heads."""
    answer = hit(demo.query(build.apply_rope(16, 32, 8, 128)))
    assert answer.latency_us == 3.4886
    assert "inexact_match" not in answer.details
