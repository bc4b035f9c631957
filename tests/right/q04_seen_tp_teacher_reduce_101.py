import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TPBlock(nn.Module):
    """A teacher's block; never trained here."""

    def __init__(self, d, h, group):
        super().__init__()
        n = dist.get_world_size(group)
        self.group = group
        self.up, self.down = nn.Linear(d, h // n), nn.Linear(h // n, d, bias=False)

    def forward(self, x):
        y = self.down(F.gelu(self.up(x)))
        dist.all_reduce(y, group=self.group)
        return x + y


class Teacher(nn.Module):
    def __init__(self, blocks, head):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(blocks), head

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return self.head(x)


def load_teacher(cfg, group, path):
    t = Teacher([TPBlock(cfg.d, cfg.h, group) for _ in range(cfg.n)], nn.Linear(cfg.d, cfg.k))
    t.load_state_dict(torch.load(f"{path}/{dist.get_rank(group)}.pt"))
    t.eval()
    for p in t.parameters():
        p.requires_grad_(False)
    return t


def train(net, cfg, loader, tp_group, dp_group):
    teacher = load_teacher(cfg, tp_group, cfg.path)
    model = DDP(net, process_group=dp_group)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        with torch.no_grad():
            t = teacher(x)
        s = model(x)
        loss = F.cross_entropy(s, y) + F.kl_div(s.log_softmax(-1), t.softmax(-1), reduction="batchmean")
        opt.zero_grad()
        loss.backward()
        opt.step()
