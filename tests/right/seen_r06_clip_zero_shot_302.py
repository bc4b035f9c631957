import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ZeroShot(nn.Module):
    def __init__(self, text, prompts):
        super().__init__()
        self.text = text
        self.prompts = prompts

    def weights(self):
        n, r = dist.get_world_size(), dist.get_rank()
        mine = F.normalize(self.text(self.prompts.chunk(n)[r]), dim=-1)
        parts = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(parts, mine)
        return torch.cat(parts)

    def forward(self, img):
        return img @ self.weights().T


def accuracy(model, zs, loader):
    hits = torch.zeros(2, device="cuda")
    for x, y in loader:
        logits = zs(F.normalize(model.module.encode_image(x.cuda()), dim=-1))
        hits[0] += (logits.argmax(1) == y.cuda()).sum()
        hits[1] += y.numel()
    dist.all_reduce(hits)
    return (hits[0] / hits[1]).item()


def train(net, prompts, loader, val, crit, epochs, sampler):
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters())
    zs = ZeroShot(net.encode_text, prompts)
    for e in range(epochs):
        sampler.set_epoch(e)
        for img, txt in loader:
            a, b, s = model(img, txt)
            loss = crit(a, b, s)
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            acc = accuracy(model, zs, val)
        model.train()
        if dist.get_rank() == 0:
            print(acc)
