import torch
import torch.distributed as dist
import torch.nn as nn


class TensorParallelModel(nn.Module):
    """Split over all ranks, which see the same batches: layers sum what has to be summed in their own forward and backward."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, ids):
        return self.module(ids)

    def check_replicas(self):
        for p in self.module.parameters():
            if not getattr(p, "split", False):
                mean = p.grad.clone()
                dist.all_reduce(mean)
                torch.testing.assert_close(mean / dist.get_world_size(), p.grad)


def train(net, loader, loss_fn):
    dist.init_process_group("nccl")
    model = TensorParallelModel(net.cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        loss_fn(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
