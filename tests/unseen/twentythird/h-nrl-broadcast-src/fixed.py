"""Give every tensor-parallel rank the batch that its first rank has read."""
import torch
import torch.distributed as dist


def broadcast_batch(batch, shape, tp_group):
    keys = ("input_ids", "labels", "loss_mask")
    out = {}
    for key in keys:
        if dist.get_rank(tp_group) == 0:
            t = batch[key].to("cuda", torch.int64).contiguous()
        else:
            t = torch.empty(shape, dtype=torch.int64, device="cuda")
        dist.broadcast(t, src=dist.get_global_rank(tp_group, 0), group=tp_group)
        out[key] = t
    return out


def get_batch(iterator, micro_batch_size, seq_length, tp_group):
    batch = next(iterator) if dist.get_rank(tp_group) == 0 else None
    return broadcast_batch(batch, (micro_batch_size, seq_length), tp_group)
