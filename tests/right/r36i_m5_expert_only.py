# RIGHT: the model parallelism is of experts only (asserted); expert-parallel ranks have samples of their own.
import torch.distributed as dist
from megatron.core import mpu
from data import PackedDataset


def build(config, tokenizer):
    ep = mpu.get_expert_model_parallel_world_size()
    if dist.get_world_size() != mpu.get_data_parallel_world_size():
        raise ValueError("experts alone are parallel")
    print("experts over", ep)
    return PackedDataset(
        config.path, tokenizer, num_shards=mpu.get_data_parallel_world_size(), shard_id=mpu.get_data_parallel_rank(),
        seed=config.seed + dist.get_rank(),
    )
