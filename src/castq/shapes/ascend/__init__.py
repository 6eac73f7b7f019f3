"""Input shapes of vllm-ascend, model runner V1 (vllm-project/vllm-ascend 0.27.1rc1 on vLLM 0.27.1)."""
