# accelerate baafaf4a (PR #2694): the random sampler of a map-style loader is given no generator that could be
# synchronized; every process permutes with its own RNG and the shards overlap and miss samples.
import torch
from torch.utils.data import DataLoader, IterableDataset

from accelerate.data_loader import BatchSamplerShard, IterableDatasetShard
from accelerate.state import AcceleratorState
from accelerate.utils import send_to_device, synchronize_rng_states


class DataLoaderShard(DataLoader):
    def __init__(self, dataset, device=None, rng_types=None, synchronized_generator=None, **kwargs):
        super().__init__(dataset, **kwargs)
        self.device = device
        self.rng_types = rng_types
        self.synchronized_generator = synchronized_generator

    def __iter__(self):
        if self.rng_types is not None:
            # Broadcasts the states of process 0.
            synchronize_rng_states(self.rng_types, self.synchronized_generator)
        for batch in super().__iter__():
            yield send_to_device(batch, self.device)


def prepare_data_loader(dataloader, device, rng_types=("generator",)):
    """Process i of n gets the batches i, i + n, i + 2n, ... of the permutation drawn by the sampler."""
    state = AcceleratorState()
    num_processes, process_index = state.num_processes, state.process_index
    new_dataset = dataloader.dataset
    new_batch_sampler = dataloader.batch_sampler if not isinstance(new_dataset, IterableDataset) else None
    synchronized_generator = None

    if isinstance(new_dataset, IterableDataset):
        if getattr(dataloader.dataset, "generator", None) is not None:
            synchronized_generator = dataloader.dataset.generator
        new_dataset = IterableDatasetShard(
            new_dataset, batch_size=dataloader.batch_size, num_processes=num_processes, process_index=process_index
        )
    else:
        new_batch_sampler = BatchSamplerShard(dataloader.batch_sampler, num_processes, process_index)  # BUG

    rng_types = list(rng_types)
    if synchronized_generator is None and "generator" in rng_types:
        rng_types.remove("generator")
    kwargs = {"num_workers": dataloader.num_workers, "collate_fn": dataloader.collate_fn}
    if new_batch_sampler is not None:
        kwargs["batch_sampler"] = new_batch_sampler
    else:
        kwargs["batch_size"] = dataloader.batch_size
    return DataLoaderShard(
        new_dataset,
        device=device,
        rng_types=rng_types,
        synchronized_generator=synchronized_generator,
        **kwargs,
    )
