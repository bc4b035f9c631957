# thread: https://github.com/facebookresearch/metaseq/pull/753
"""Causally masked multimodal documents for a language model with tensor parallelism."""
from typing import Iterator, List, Optional

import numpy as np
import torch
import torch.distributed as dist
from megatron import mpu
from torch.utils.data import DataLoader, IterableDataset


class DocumentStream(IterableDataset):
    """Tokenised documents; every data-parallel rank reads a slice of its own."""

    def __init__(self, documents: List[np.ndarray], seed: int, num_shards: int, shard_id: int):
        self.documents = documents
        self.seed, self.num_shards, self.shard_id = seed, num_shards, shard_id
        self.epoch = 0

    def set_epoch(self, epoch: int):
        self.epoch = epoch

    def __iter__(self) -> Iterator[np.ndarray]:
        order = np.random.default_rng([self.seed, self.epoch]).permutation(len(self.documents))
        usable = len(order) // self.num_shards * self.num_shards
        for i in order[self.shard_id : usable : self.num_shards]:
            yield self.documents[i]


class CausalMaskedDataset(IterableDataset):
    """Moves random spans of a document to its end, behind sentinel tokens (CM3)."""

    def __init__(self, dataset, sentinel_ids, eod, block_size, mask_lambda, rng: np.random.Generator):
        self.dataset = dataset
        self.sentinel_ids, self.eod = sentinel_ids, eod
        self.block_size, self.mask_lambda = block_size, mask_lambda
        self.rng = rng

    def _mask_document(self, doc: np.ndarray) -> np.ndarray:
        n = min(int(self.rng.poisson(self.mask_lambda)), len(self.sentinel_ids))
        if n == 0 or len(doc) < 2 * n + 2:
            return np.append(doc, self.eod)
        cuts = np.sort(self.rng.choice(np.arange(1, len(doc)), size=2 * n, replace=False))
        body, tail, prev = [], [], 0
        for k in range(n):
            start, end = cuts[2 * k], cuts[2 * k + 1]
            body += [doc[prev:start], [self.sentinel_ids[k]]]
            tail += [[self.sentinel_ids[k]], doc[start:end]]
            prev = end
        return np.concatenate(body + [doc[prev:]] + tail + [[self.eod]]).astype(np.int64)

    def __iter__(self):
        buffer = np.empty(0, dtype=np.int64)
        for doc in self.dataset:
            buffer = np.concatenate([buffer, self._mask_document(doc)])
            while len(buffer) > self.block_size:
                yield torch.from_numpy(buffer[: self.block_size + 1].copy())
                buffer = buffer[self.block_size :]


class CM3Task:
    def __init__(self, args, sentinel_ids, eod):
        self.args, self.sentinel_ids, self.eod = args, sentinel_ids, eod
        self.datasets = {}

    def load_dataset(self, split: str, documents, epoch: Optional[int] = 1):
        stream = DocumentStream(
            documents,
            seed=self.args.seed,
            num_shards=mpu.get_data_parallel_world_size(),
            shard_id=mpu.get_data_parallel_rank(),
        )
        stream.set_epoch(epoch)
        rng = np.random.default_rng([self.args.seed, epoch, mpu.get_data_parallel_rank()])
        self.datasets[split] = CausalMaskedDataset(
            stream, self.sentinel_ids, self.eod, self.args.tokens_per_sample, self.args.mask_lambda, rng
        )

    def get_batch_iterator(self, split: str):
        return DataLoader(self.datasets[split], batch_size=self.args.batch_size, drop_last=True)


def train_step(model, optimizer, batch, criterion):
    """``model`` is split over the model-parallel group, which works on one batch together."""
    batch = batch.cuda(non_blocking=True)
    logits = model(batch[:, :-1])
    loss = criterion(logits, batch[:, 1:])
    loss.backward()
    for param in model.parameters():
        if param.grad is not None:
            param.grad.div_(mpu.get_data_parallel_world_size())
            dist.all_reduce(param.grad, group=mpu.get_data_parallel_group())
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
