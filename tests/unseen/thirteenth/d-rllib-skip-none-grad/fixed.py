"""Multi-agent learner: several policies, whose data may be missing on some learners.

Source: ray-project/ray PR #59544 (review of the manual all-reduce).
"""
import torch
import torch.distributed as dist
from torch import nn


class TorchLearner:
    def __init__(self, modules: nn.ModuleDict, loss_fn, lr, device):
        self.modules = modules.to(device)
        self.loss_fn, self.device = loss_fn, device
        self.optimizer = torch.optim.Adam(self.modules.parameters(), lr=lr)

    def global_count(self, module_id, batch):
        n = len(batch[module_id]["obs"]) if module_id in batch else 0
        count = torch.tensor(float(n), device=self.device)
        dist.all_reduce(count)
        return count.clamp(min=1.0)

    def compute_gradients(self, batch):
        self.optimizer.zero_grad(set_to_none=True)
        counts = {module_id: self.global_count(module_id, batch) for module_id in self.modules}
        for module_id, data in batch.items():
            loss = self.loss_fn(self.modules[module_id], data).sum() / counts[module_id]
            loss.backward()

    def postprocess_gradients(self):
        for p in self.modules.parameters():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)

    def update(self, batch):
        # ``batch`` maps a module id to this learner's samples of that policy
        self.compute_gradients(batch)
        self.postprocess_gradients()
        self.optimizer.step()
