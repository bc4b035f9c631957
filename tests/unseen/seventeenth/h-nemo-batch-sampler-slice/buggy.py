# Source: NVIDIA/NeMo commit 1e1afc55e8 (PR #3826),
# collections/nlp/data/language_modeling/megatron/megatron_batch_samplers.py
# The sampler collects only as many indices as one data-parallel rank needs and then takes this
# rank's slice of them: rank 0 gets all, the other ranks get empty lists.
# Repair: collect a global batch (times data_parallel_size) before slicing.
import torch
from torch.utils.data import DataLoader

from megatron.core import parallel_state


class MegatronPretrainingBatchSampler:
    """Yields the indices of all micro batches of one step for this data-parallel rank."""

    def __init__(
        self,
        total_samples: int,
        consumed_samples: int,
        num_micro_batch_times_micro_batch_size: int,
        data_parallel_rank: int,
        data_parallel_size: int,
        drop_last: bool = True,
    ):
        if data_parallel_rank >= data_parallel_size:
            raise RuntimeError(f"data_parallel_rank should be smaller: {data_parallel_rank}, {data_parallel_size}")
        self.total_samples = total_samples
        self.consumed_samples = consumed_samples
        self._num_micro_batch_times_micro_batch_size = num_micro_batch_times_micro_batch_size
        self.data_parallel_rank = data_parallel_rank
        self.data_parallel_size = data_parallel_size
        self._global_batch_size = num_micro_batch_times_micro_batch_size * data_parallel_size
        self.drop_last = drop_last

    def __len__(self):
        return (self.total_samples - self.consumed_samples - 1) // self._global_batch_size + 1

    def get_start_end_idx(self):
        start_idx = self.data_parallel_rank * self._num_micro_batch_times_micro_batch_size
        end_idx = start_idx + self._num_micro_batch_times_micro_batch_size
        return start_idx, end_idx

    def __iter__(self):
        batch = []
        # Last batch will be dropped if drop_last is not set False
        for idx in range(self.consumed_samples, self.total_samples):
            batch.append(idx)
            if len(batch) == self._num_micro_batch_times_micro_batch_size:  # BUG
                start_idx, end_idx = self.get_start_end_idx()
                yield batch[start_idx:end_idx]
                batch = []

        if len(batch) > 0 and not self.drop_last:
            start_idx, end_idx = self.get_start_end_idx()
            yield batch[start_idx:end_idx]


def build_pretraining_data_loader(cfg, dataset: torch.utils.data.Dataset, consumed_samples: int) -> DataLoader:
    data_parallel_size = parallel_state.get_data_parallel_world_size()
    batch_sampler = MegatronPretrainingBatchSampler(
        total_samples=len(dataset),
        consumed_samples=consumed_samples,
        num_micro_batch_times_micro_batch_size=cfg.global_batch_size // data_parallel_size,
        data_parallel_rank=parallel_state.get_data_parallel_rank(),
        data_parallel_size=data_parallel_size,
    )
    return DataLoader(dataset, batch_sampler=batch_sampler, num_workers=cfg.data.num_workers, pin_memory=True)
