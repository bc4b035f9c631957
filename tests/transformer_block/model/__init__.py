"""A GPT with tensor and sequence parallelism, in the idiom of Megatron-core."""
