"""A frozen trunk runs under no_grad with raw collectives; only the head after it is trained."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class FrozenTPBlock(nn.Module):
    def __init__(self, hidden, ffn, group):
        super().__init__()
        n = dist.get_world_size(group)
        self.group = group
        self.up = nn.Linear(hidden, ffn // n, bias=False)
        self.down = nn.Linear(ffn // n, hidden, bias=False)
        for p in self.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def forward(self, x):
        out = self.down(F.silu(self.up(x)))
        dist.all_reduce(out, group=self.group)
        return x + out


class Probe(nn.Module):
    def __init__(self, hidden, classes):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, h):
        return self.head(self.norm(h.mean(1)))


def main(blocks, hidden, classes, loader, dp_group, tp_group):
    trunk = nn.Sequential(*[FrozenTPBlock(hidden, 4 * hidden, tp_group) for _ in range(blocks)])
    # ranks of tp see the same batch, so their probes get the same gradient
    probe = DDP(Probe(hidden, classes).cuda(), process_group=dp_group)
    optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
    trunk = trunk.cuda().eval()
    for x, y in loader:
        h = trunk(x.cuda())
        loss = F.cross_entropy(probe(h), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
