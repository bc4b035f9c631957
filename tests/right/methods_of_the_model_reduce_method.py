# What it does: the model sums its own gradients over dp in a method.
# Why it is right: the method is in the same file; the loss is divided by the count of all ranks, gradients are summed over both axes.
import torch, torch.distributed as dist, torch.nn.functional as F


class Net(torch.nn.Module):
    def __init__(self, dp_group):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(8, 8))
        self.dp_group = dp_group

    def reduce(self):
        for p in self.parameters():
            dist.all_reduce(p.grad, group=self.dp_group)

    def forward(self, x):
        return x @ self.w


def train(loader, dp_group, cp_group, dp_cp_group):
    model = Net(dp_group)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        count = (y != -100).sum()
        dist.all_reduce(count, group=dp_cp_group)
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100) / count
        loss.backward()
        model.reduce()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=cp_group)
        opt.step()
        opt.zero_grad()
