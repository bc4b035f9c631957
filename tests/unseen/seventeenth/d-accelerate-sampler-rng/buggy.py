# Source: huggingface/accelerate commit baafaf4a (PR #2694), src/accelerate/data_loader.py
# Each process takes every num_processes-th batch of the same batch sampler, which presupposes the
# same permutation on all of them. The RandomSampler has no generator of its own, so there is
# nothing to synchronise, and every process shuffles differently: samples come twice or never.
# Repair: give the sampler a generator and synchronise its state at each epoch.
from torch.utils.data import BatchSampler, DataLoader

from accelerate.data_loader import BatchSamplerShard
from accelerate.state import AcceleratorState
from accelerate.utils import RNGType, synchronize_rng_states


class DataLoaderShard(DataLoader):
    def __init__(self, dataset, device=None, rng_types=None, synchronized_generator=None, **kwargs):
        super().__init__(dataset, **kwargs)
        self.device = device
        self.rng_types = rng_types
        self.synchronized_generator = synchronized_generator

    def __iter__(self):
        if self.rng_types is not None:
            synchronize_rng_states(self.rng_types, self.synchronized_generator)
        yield from super().__iter__()


def prepare_data_loader(dataloader: DataLoader, device=None, split_batches=False, rng_types=None, even_batches=True):
    state = AcceleratorState()
    num_processes, process_index = state.num_processes, state.process_index

    synchronized_generator = None
    sampler_is_batch_sampler = isinstance(dataloader.sampler, BatchSampler)
    if sampler_is_batch_sampler:
        sampler = getattr(dataloader.sampler, "sampler", None)
    else:
        sampler = getattr(dataloader.batch_sampler, "sampler", None)

    # every process iterates over all batches and keeps those of its index
    batch_sampler = dataloader.sampler if sampler_is_batch_sampler else dataloader.batch_sampler
    new_batch_sampler = BatchSamplerShard(  # BUG
        batch_sampler,
        num_processes=num_processes,
        process_index=process_index,
        split_batches=split_batches,
        even_batches=even_batches,
    )

    if rng_types is not None and synchronized_generator is None and RNGType.GENERATOR in rng_types:
        rng_types.remove(RNGType.GENERATOR)

    return DataLoaderShard(
        dataloader.dataset,
        device=device,
        batch_sampler=new_batch_sampler,
        rng_types=rng_types,
        synchronized_generator=synchronized_generator,
        num_workers=dataloader.num_workers,
        collate_fn=dataloader.collate_fn,
    )
