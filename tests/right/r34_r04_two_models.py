import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Judge(nn.Module):
    """The reward model; trained elsewhere, with `sync_judge`."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)

    def sync_judge(self):
        for p in self.module.parameters():
            dist.all_reduce(p.grad)


def ppo(policy, reward, loader):
    judge = Judge(reward).eval()
    policy = DDP(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
    for prompt in loader:
        out = policy(prompt)
        loss = -(judge(out) * out.log_softmax(-1).amax(-1)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
