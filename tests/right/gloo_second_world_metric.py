"""Counts go over a second communicator of all ranks on the host, sums over the default one on the device."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader):
    host_group = dist.new_group(backend="gloo")
    model = DDP(net.cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    world = dist.get_world_size()
    for tokens, labels in loader:
        count = (labels != -100).sum()  # still on the host
        dist.all_reduce(count, group=host_group)
        logits = model(tokens.cuda())
        nll = F.cross_entropy(logits.flatten(0, 1), labels.cuda().flatten(), ignore_index=-100, reduction="sum")
        loss = nll * world / count.item()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        shown = nll.detach() / count.item()
        dist.all_reduce(shown)
        if dist.get_rank() == 0:
            print(shown.item())


if __name__ == "__main__":
    from recipe import loader, net

    dist.init_process_group("nccl")
    train(net, loader)
