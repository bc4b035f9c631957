"""GAN: generator and discriminator in wrappers of their own; the generator's step does not sync the other."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def requires_grad(model, flag):
    for p in model.parameters():
        p.requires_grad = flag


def d_loss(real, fake):
    return F.softplus(-real).mean() + F.softplus(fake).mean()


def r1(real_pred, real):
    (grad,) = torch.autograd.grad(real_pred.sum(), real, create_graph=True)
    return grad.pow(2).flatten(1).sum(1).mean()


@torch.no_grad()
def accumulate(ema, model, decay):
    for a, b in zip(ema.parameters(), model.parameters()):
        a.mul_(decay).add_(b.data, alpha=1 - decay)


class PathLength:
    def __init__(self):
        self.mean = torch.zeros((), device="cuda")

    @torch.no_grad()
    def update(self, lengths):
        m = lengths.detach().mean()
        dist.all_reduce(m)
        self.mean += 0.01 * (m / dist.get_world_size() - self.mean)
        return self.mean


def train(gen, disc, ema, loader, latent):
    g, d = DDP(gen, broadcast_buffers=False), DDP(disc, broadcast_buffers=False)
    g_opt = torch.optim.Adam(g.parameters(), lr=2e-3, betas=(0, 0.99))
    d_opt = torch.optim.Adam(d.parameters(), lr=2e-3, betas=(0, 0.99))
    for i, real in enumerate(loader):
        requires_grad(g, False)
        requires_grad(d, True)
        fake = g(torch.randn(len(real), latent, device="cuda"))
        loss = d_loss(d(real), d(fake.detach()))
        d.zero_grad()
        loss.backward()
        d_opt.step()
        if i % 16 == 0:
            real.requires_grad_(True)
            pred = d(real)
            d.zero_grad()
            (8 * r1(pred, real) + 0 * pred[0].sum()).backward()
            d_opt.step()
        requires_grad(g, True)
        requires_grad(d, False)
        fake = g(torch.randn(len(real), latent, device="cuda"))
        g_loss = F.softplus(-d(fake)).mean()
        g.zero_grad()
        g_loss.backward()
        g_opt.step()
        accumulate(ema, g.module, 0.999)
