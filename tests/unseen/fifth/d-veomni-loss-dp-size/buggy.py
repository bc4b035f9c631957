"""Token-weighted loss under FSDP and Ulysses sequence parallelism."""
import torch
import torch.distributed as dist


def all_reduce(value, group):
    t = torch.tensor(value, dtype=torch.float32, device="cuda")
    dist.all_reduce(t, group=group)
    return t.item()


def train_step(model, micro_batches, ps, optimizer):
    # ps.fsdp_group: data x sequence-parallel ranks; FSDP averages gradients over it
    assert ps.fsdp_size == ps.dp_size * ps.sp_size
    total = all_reduce(sum((mb["labels"] != -100).sum().item() for mb in micro_batches), ps.fsdp_group)
    for mb in micro_batches:
        tokens = (mb["labels"] != -100).sum()
        loss = model(**mb).loss  # mean over this rank's tokens
        loss = loss * tokens / total * ps.dp_size  # BUG: the average is over fsdp_size ranks
        loss.backward()
    optimizer.step()
