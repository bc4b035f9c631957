"""Generation with a colocated vLLM engine that spans a tensor-parallel group.

huggingface/trl 7fd17112c54d, trl/generation/vllm_generation.py
"""
import torch


class VLLMGeneration:
    def __init__(self, llm, tensor_parallel_size, tp_group, sampling_params):
        self.llm = llm
        self.tensor_parallel_size = tensor_parallel_size
        self.tp_group = tp_group
        self.sampling_params = sampling_params

    def generate(self, prompts: list, images: list | None):
        """`images` is None when no sample of this rank's batch has an image."""
        if self.tensor_parallel_size > 1:
            # Gather prompts from all ranks in the TP group and flatten.
            # Each rank starts with its own prompts; after gathering, all ranks see the full group set.
            orig_size = len(prompts)
            gathered_prompts = [None for _ in range(self.tensor_parallel_size)]
            torch.distributed.all_gather_object(gathered_prompts, prompts, group=self.tp_group)
            all_prompts = [p for sublist in gathered_prompts for p in sublist]
            if images is not None:  # BUG
                gathered_images = [None for _ in range(self.tensor_parallel_size)]
                torch.distributed.all_gather_object(gathered_images, images, group=self.tp_group)
                all_images = [img for sublist in gathered_images for img in sublist]
            else:
                all_images = None
        else:
            all_prompts = prompts
            all_images = images

        if all_images is not None:
            vllm_inputs = [
                {"prompt": p, "multi_modal_data": {"image": img}} if img is not None else {"prompt": p}
                for p, img in zip(all_prompts, all_images, strict=True)
            ]
        else:
            vllm_inputs = [{"prompt": p} for p in all_prompts]
        all_outputs = self.llm.generate(vllm_inputs, sampling_params=self.sampling_params, use_tqdm=False)
        completion_ids = [output.token_ids for outputs in all_outputs for output in outputs.outputs]

        if self.tensor_parallel_size > 1:
            # Slice completions for this rank within its TP group.
            local_rank_in_group = torch.distributed.get_rank(group=self.tp_group)
            tp_slice = slice(local_rank_in_group * orig_size, (local_rank_in_group + 1) * orig_size)
            completion_ids = completion_ids[tp_slice]
        return completion_ids
