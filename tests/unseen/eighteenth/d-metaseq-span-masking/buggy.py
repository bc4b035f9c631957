"""Mask spans of a document on the fly for a tensor-parallel model.

Source: facebookresearch/metaseq, pull request #753. The random source of the masking depends on
the global rank. The model-parallel ranks of one replica load the same document but mask it
differently, so their shards compute on different inputs.
"""
import numpy as np
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch.utils.data import DataLoader, DistributedSampler


class SpanMasking:
    def __init__(self, seed, mask_id, ratio=0.15, mean_span=5):
        self.rng = np.random.default_rng(seed + dist.get_rank())  # BUG
        self.mask_id, self.ratio, self.mean_span = mask_id, ratio, mean_span

    def __call__(self, samples):
        tokens = torch.stack([torch.as_tensor(s) for s in samples])
        inputs, labels = tokens.clone(), torch.full_like(tokens, -100)
        for row in range(tokens.size(0)):
            masked = 0
            while masked < self.ratio * tokens.size(1):
                length = 1 + int(self.rng.poisson(self.mean_span))
                start = int(self.rng.integers(0, tokens.size(1)))
                inputs[row, start:start + length] = self.mask_id
                labels[row, start:start + length] = tokens[row, start:start + length]
                masked += length
        return inputs, labels


def train(model, dataset, optimizer, loss_fn, batch_size, seed, mask_id):
    # model: column- and row-parallel layers over the tensor-parallel group, data-parallel wrapper
    sampler = DistributedSampler(
        dataset,
        num_replicas=parallel_state.get_data_parallel_world_size(),
        rank=parallel_state.get_data_parallel_rank(),
        seed=seed,
    )
    loader = DataLoader(
        dataset, batch_size, sampler=sampler, collate_fn=SpanMasking(seed, mask_id), drop_last=True
    )
    for inputs, labels in loader:
        optimizer.zero_grad()
        logits = model(inputs.cuda())
        loss_fn(logits.flatten(0, 1), labels.cuda().flatten()).backward()
        optimizer.step()
