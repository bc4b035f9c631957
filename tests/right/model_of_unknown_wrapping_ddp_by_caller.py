# What it does: DDP over dp by the caller, gradients summed over cp by hand, loss scaled for DDP's mean.
# Why it is right: DDP averages over dp, the loop sums over cp, and the loss is the mean over all tokens times dp.
import torch, torch.distributed as dist, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, opt, dp_group, cp_group, dp_cp_group):
    for x, y in loader:
        count = (y != -100).sum()
        dist.all_reduce(count, group=dp_cp_group)
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100) * dp_group.size() / count
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=cp_group)
        opt.step()
        opt.zero_grad()


def main(net, loader, dp_group, cp_group, dp_cp_group):
    model = DDP(net, process_group=dp_group)
    opt = torch.optim.AdamW(model.parameters())
    train(model, loader, opt, dp_group, cp_group, dp_cp_group)
