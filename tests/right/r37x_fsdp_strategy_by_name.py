import fairscale.nn.model_parallel.initialize as fs_init
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy


def wrap(model, args):
    return FSDP(
        model,
        process_group=fs_init.get_data_parallel_group(),
        sharding_strategy={
            "fsdp": ShardingStrategy.FULL_SHARD,
            "sdp": ShardingStrategy.SHARD_GRAD_OP,
        }[args.data_parallel],
        use_orig_params=True,
    )


def grad_norm(model, split):
    split_sq = torch.tensor(0.0, device="cuda")
    whole_sq = torch.tensor(0.0, device="cuda")
    for name, param in model.named_parameters():
        if param.grad is None:
            continue
        if name in split:
            split_sq += param.grad.norm(dtype=torch.float32) ** 2
        else:
            whole_sq += param.grad.norm(dtype=torch.float32) ** 2
    dist.all_reduce(split_sq)
    dist.all_reduce(whole_sq)
    whole_sq /= fs_init.get_model_parallel_world_size()
    return (split_sq.item() + whole_sq.item()) ** 0.5


def train(model, batches, optimizer, args, split):
    model = wrap(model, args)
    for x in batches:
        model(x).mean().backward()
        norm = grad_norm(model, split)
        if norm > args.clip:
            for p in model.parameters():
                if p.grad is not None:
                    p.grad.mul_(args.clip / norm)
        optimizer.step()
        optimizer.zero_grad()
