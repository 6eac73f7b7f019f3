"""Input shapes of vllm-rbln, native path (RBLN-SW/vllm-rbln 0.11.3a21 on vLLM 0.26.0)."""
