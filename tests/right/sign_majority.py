"""signSGD with majority vote."""
import torch
import torch.distributed as dist


class SignSGD(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            votes = []
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                m = state.setdefault("m", torch.zeros_like(p))
                m.mul_(group["momentum"]).add_(p.grad, alpha=1 - group["momentum"])
                votes.append((p, m.sign()))
            flat = torch.cat([v.flatten() for _, v in votes])
            dist.all_reduce(flat)
            flat.sign_()
            at = 0
            for p, v in votes:
                n = v.numel()
                p.add_(flat[at : at + n].view_as(p), alpha=-group["lr"])
                at += n


def train(model, loader, loss_fn):
    optimizer = SignSGD(model.parameters())
    for x, y in loader:
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()
