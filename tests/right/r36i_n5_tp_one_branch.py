# RIGHT: global rank is used only where the tensor-parallel size is 1.
import torch.distributed as dist
from megatron.core import mpu
from data import PackedDataset


def build(config, tokenizer):
    if mpu.get_model_parallel_world_size() == 1:
        return PackedDataset(
            config.path, tokenizer, num_shards=mpu.get_data_parallel_world_size(),
            shard_id=mpu.get_data_parallel_rank(), seed=config.seed + dist.get_rank(),
        )
    return PackedDataset(
        config.path, tokenizer, num_shards=mpu.get_data_parallel_world_size(),
        shard_id=mpu.get_data_parallel_rank(), seed=config.seed + mpu.get_data_parallel_rank(),
    )
