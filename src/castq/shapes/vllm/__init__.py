"""vLLM V1: the scheduler that vllm-ascend and vllm-rbln stand on, and the CUDA graphs of the GPU."""
