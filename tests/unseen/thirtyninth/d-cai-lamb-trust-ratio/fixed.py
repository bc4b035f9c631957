"""LAMB on ZeRO slices of tensor-parallel parameters."""
import torch
import torch.distributed as dist
from torch.optim import Optimizer


def is_distributed_tensor(p):
    return hasattr(p, "dist_layout")


class DistributedLamb(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    def setup_distributed(self, tp_group, dp_group, shard_to_param):
        """shard_to_param maps a ZeRO slice to the parameter it was cut from."""
        self.tp_group, self.dp_group = tp_group, dp_group
        self.shard_to_param = shard_to_param

    def _full_norm(self, p, t):
        sq = t.float().pow(2).sum()
        dist.all_reduce(sq, group=self.dp_group)
        if is_distributed_tensor(self.shard_to_param[id(p)]):
            dist.all_reduce(sq, group=self.tp_group)
        return sq.sqrt()

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                state["step"] += 1
                m, v = state["exp_avg"], state["exp_avg_sq"]
                m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                m_hat = m / (1 - beta1 ** state["step"])
                v_hat = v / (1 - beta2 ** state["step"])
                update = m_hat / (v_hat.sqrt() + group["eps"])
                if group["weight_decay"]:
                    update = update + group["weight_decay"] * p
                w_norm, u_norm = self._full_norm(p, p), self._full_norm(p, update)
                ratio = torch.where((w_norm > 0) & (u_norm > 0), w_norm / u_norm, torch.ones_like(w_norm))
                p.add_(update * ratio, alpha=-group["lr"])
