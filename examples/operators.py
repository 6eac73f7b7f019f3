"""How long does this operator take on that device, and how do we know?  Run by `make demo`.

Asks the same kinds of questions of real GPU measurements (the `gpu` extra brings them) and of a synthetic database in
the Ascend layout, and prints each command as it could be typed.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

GPU = "h200_sxm/vllm/0.24.0"
EXPERTS = "--input 16,7168,4096:int8@gmm1_weight --input 16,2048,7168:int8@gmm2_weight"
KV_CACHE = "--input 513,128,8,128:bf16 --input 513,128,8,128:bf16"

REAL = (
    ("a bf16 matmul that was measured", "--op aten.mm.default --input 4096,5120:bf16 --input 5120,4096:bf16"),
    ("a bf16 matmul off the grid", "--op aten.mm.default --input 5000,5120:bf16 --input 5120,4000:bf16"),
    (
        "an fp8 matmul that was measured",
        "--op tensor_cast.fp8_linear.default --input 64,4096:fp8 --input 4096,4096:fp8 --input ():fp32 --input ():fp32",
    ),
    (
        "an fp8 matmul off the grid",
        "--op tensor_cast.fp8_linear.default --input 70,4096:fp8 --input 4096,4096:fp8 --input ():fp32 --input ():fp32",
    ),
    (
        "prefill attention, 3 requests of 1500 tokens",
        f"--op tensor_cast.attention.default --input 4500,4096:bf16 {KV_CACHE} --query-lens 3x1500 --kv-lens 3x1500",
    ),
    (
        "decode attention, 16 requests at 5000 tokens of context",
        f"--op tensor_cast.attention.default --input 16,4096:bf16 {KV_CACHE} --query-lens 16x1 --kv-lens 16x5000",
    ),
    (
        "a MoE layer: 100 tokens, 8 of 128 experts, on 8 ranks",
        "--op tensor_cast.fused_experts.default --input 100,2048:bf16 --input 100,8:int32 "
        "--input 16,2048,1536:bf16 --input 16,768,2048:bf16 --attr moe_ep_size=8 --attr num_experts=128",
    ),
    (
        "a matmul larger than anything measured: an honest miss",
        "--op aten.mm.default --input 100000,5120:bf16 --input 5120,4096:bf16",
    ),
    (
        "a float16 matmul, which nobody measured: never borrowed from bf16",
        "--op aten.mm.default --input 4096,5120:fp16 --input 5120,4096:fp16",
    ),
)

SYNTHETIC = (
    ("an exact matmul", "--op aten.mm.default --input 4096,5120:bf16 --input 5120,768:bf16"),
    ("a matmul between two rows", "--op aten.mm.default --input 100,5120:bf16 --input 5120,768:bf16"),
    (
        "a W8A8 matmul in three dimensions",
        "--op tensor_cast.static_quant_linear.default --input 100,3072:int8 --input 3072,3072:int8 "
        "--output 100,3072:bf16",
    ),
    (
        "prefill attention",
        "--op tensor_cast.attention.default --input 2048,1024:bf16 --input 64,128,1,128:bf16 "
        "--input 64,128,1,128:bf16 --query-lens 2048 --kv-lens 6000",
    ),
    (
        "fused dispatch, FFN and combine on 16 expert-parallel ranks",
        "--op tensor_cast.dispatch_ffn_combine_quant.default --ep-size 16 --input 200,7168:bf16@x "
        "--input 200,8:int64@expert_indices " + EXPERTS,
    ),
    (
        "the same without an expert-parallel size: a miss that says so",
        "--op tensor_cast.dispatch_ffn_combine_quant.default --input 200,7168:bf16@x "
        "--input 200,8:int64@expert_indices " + EXPERTS,
    ),
)


def castq(arguments: str) -> int:
    """Run one command as a user would; the program's own exit codes tell hits (0) from misses (3)."""
    print(f"$ castq {arguments}", flush=True)
    command = [sys.executable, "-c", "from castq.cli import main; main()", *shlex.split(arguments)]
    code = subprocess.run(command, check=False).returncode
    if code not in (0, 3):
        sys.exit(f"castq failed with exit code {code}")
    return code


def main() -> None:
    print(f"# Real measurements: {GPU}\n")
    for title, question in REAL:
        print(f"## {title}")
        castq(f"lookup -d {GPU} {question}")
        print()
    print("# The evidence behind one answer\n")
    castq(f"lookup -d {GPU} {REAL[1][1]} --explain")
    with tempfile.TemporaryDirectory() as folder:
        demo = Path(folder) / "demo"
        print("\n# A synthetic database in the Ascend layout\n")
        castq(f"db demo --out {demo}")
        for title, question in SYNTHETIC:
            print(f"\n## {title}")
            castq(f"lookup -d {demo} {question}")


if __name__ == "__main__":
    main()
