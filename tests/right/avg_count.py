"""The denominator is the average count per rank; an average of gradients makes it the global one."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def mean_over_ranks(n):
    n = n.float()
    dist.all_reduce(n, op=dist.ReduceOp.AVG)
    return n.clamp(min=1.0)


def loss_of(logits, labels):
    nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none")
    return nll.sum() / mean_over_ranks((labels != -100).sum())


def train(net, loader):
    model = FSDP(net, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    for batch in loader:
        loss = loss_of(model(batch["input_ids"]), batch["labels"])
        loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        shown = loss.detach().clone()
        dist.all_reduce(shown, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(shown.item())


if __name__ == "__main__":
    dist.init_process_group("nccl")
    from recipe import loader, net

    train(net, loader)
