"""Definitions that come with castq, for programs to `use`: `lib/vllm.sq`, `lib/ascend.sq`, `lib/rbln.sq`."""
