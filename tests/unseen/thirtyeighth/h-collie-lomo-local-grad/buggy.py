"""LOMO: parameters are updated inside the backward pass."""
# thread: OpenMOSS/CoLLiE#43
import torch
import torch.distributed as dist
from torch.optim import Optimizer


class Lomo(Optimizer):
    def __init__(self, model, lr=1e-3, clip_grad_norm=None, dp_group=None):
        self.model = model
        self.lr = lr
        self.clip_grad_norm = clip_grad_norm
        self.dp_group = dp_group
        self.world_size = dist.get_world_size(dp_group)
        self.gather_norm = False
        self.grad_norms = []
        self.clip_coef = None
        # data loaders differ per rank, parameters are replicated
        self.grad_func = self.fuse_update()
        for p in self.model.parameters():
            if p.requires_grad:
                p.register_hook(self.grad_func)
        super().__init__(self.model.parameters(), dict(lr=lr, clip_grad_norm=clip_grad_norm))

    def fuse_update(self):
        """Returns a hook that uses up every gradient present so far, and frees it."""

        def func(x):
            with torch.no_grad():
                for p in self.model.parameters():
                    if p.requires_grad and p.grad is not None:
                        grad = p.grad  # BUG: local to this rank, replicas drift apart
                        if self.gather_norm:
                            self.grad_norms.append(torch.norm(grad.float(), 2.0))
                            p.grad = None
                        else:
                            grad_fp32 = grad.to(torch.float32)
                            p.grad = None
                            if self.clip_coef is not None:
                                grad_fp32.mul_(self.clip_coef)
                            p_fp32 = p.data.to(torch.float32)
                            p_fp32.add_(grad_fp32, alpha=-self.lr)
                            p.data.copy_(p_fp32)
            return x

        return func

    def fused_backward(self, loss, lr):
        self.lr = lr
        if self.clip_grad_norm is not None and self.clip_coef is None:
            raise ValueError("clip_grad_norm is set, call grad_norm() before fused_backward()")
        loss.backward()
        # the gradient computed last has no later hook
        self.grad_func(0)
        self.clip_coef = None

    def grad_norm(self, loss):
        """First of two backward passes when the norm is to be clipped."""
        self.gather_norm, self.grad_norms = True, []
        loss.backward(retain_graph=True)
        self.grad_func(0)
        self.gather_norm = False
        total_norm = torch.norm(torch.stack(self.grad_norms), 2.0)
        self.clip_coef = torch.clamp(float(self.clip_grad_norm) / (total_norm + 1e-6), max=1.0)
        return total_norm
