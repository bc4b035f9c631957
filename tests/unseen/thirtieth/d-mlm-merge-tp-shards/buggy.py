"""Collect the tensor-parallel shards of a GPT model into one full state dict."""
import os

import torch
import torch.distributed as dist

COLUMN_PARALLEL = ("word_embeddings.weight", "linear_qkv.weight", "linear_qkv.bias",
                   "linear_fc1.weight", "linear_fc1.bias", "output_layer.weight")
ROW_PARALLEL = ("linear_proj.weight", "linear_fc2.weight")


def partition_dim(name):
    if name.endswith(COLUMN_PARALLEL):
        return 0
    if name.endswith(ROW_PARALLEL):
        return 1
    return None


def gather_shards(tensor, group):
    shards = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(shards, tensor.contiguous(), group=group)
    return shards


def merge_glu(shards):
    """Every shard holds its part of the gate followed by its part of the up projection."""
    halves = [torch.chunk(s, 2, dim=0) for s in shards]
    gate = torch.cat([h[0] for h in halves], dim=0)
    up = torch.cat([h[1] for h in halves], dim=0)
    return torch.cat([gate, up], dim=0)


def merge_qkv(shards, num_groups_per_rank):
    # layout [groups, q..q k v, hn]; groups are contiguous per rank
    return torch.cat([s.view(num_groups_per_rank, -1, *s.shape[1:]) for s in shards], dim=0).flatten(0, 1)


@torch.no_grad()
def full_state_dict(model, config, tp_group):
    tp_size = dist.get_world_size(tp_group)
    merged = {}
    for name, tensor in model.state_dict().items():
        dim = partition_dim(name)
        if dim is None or tp_size == 1:
            merged[name] = tensor.detach().cpu().clone()
            continue
        shards = gather_shards(tensor.detach(), tp_group)
        if config.swiglu and name.endswith("linear_fc1.weight"):  # BUG
            full = merge_glu(shards)
        elif "linear_qkv" in name:
            full = merge_qkv(shards, config.num_query_groups // tp_size)
        else:
            full = torch.cat(shards, dim=dim)
        if name.endswith(("word_embeddings.weight", "output_layer.weight")):
            full = full[: config.true_vocab_size]
        merged[name] = full.cpu()
    return merged


def split_glu(full, rank, size):
    gate, up = torch.chunk(full, 2, dim=0)
    return torch.cat([torch.chunk(gate, size, dim=0)[rank], torch.chunk(up, size, dim=0)[rank]], dim=0)


def save_for_export(model, config, tp_group, dp_group, path, iteration):
    merged = full_state_dict(model, config, tp_group)
    if dist.get_rank(tp_group) == 0 and dist.get_rank(dp_group) == 0:
        os.makedirs(path, exist_ok=True)
        torch.save({"model": merged, "iteration": iteration}, os.path.join(path, "model_full.pt"))
    dist.barrier()
