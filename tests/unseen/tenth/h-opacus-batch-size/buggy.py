"""Differentially private training with data-parallel workers.

pytorch/opacus 95fdb35a1bd3, opacus/privacy_engine.py
"""
import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as DPDDP
from opacus.optimizers import DPOptimizer


class DistributedDPOptimizer(DPOptimizer):
    def scale_grad(self):
        if self.loss_reduction == "mean":
            for p in self.params:
                p.grad /= self.expected_batch_size * self.accumulated_iterations

    def reduce_gradients(self):
        for p in self.params:
            if not p.requires_grad:
                continue
            torch.distributed.all_reduce(p.grad, op=torch.distributed.ReduceOp.SUM)
            if self.loss_reduction == "mean":
                p.grad /= torch.distributed.get_world_size()

    def step(self, closure=None):
        if self.pre_step():
            self.reduce_gradients()
            return self.original_optimizer.step(closure)
        return None


class PrivacyEngine:
    def make_private(self, *, module, optimizer, data_loader, noise_multiplier, max_grad_norm, loss_reduction="mean"):
        """`data_loader`: every worker draws its part of each batch; its dataset is the whole dataset."""
        distributed = type(module) is DPDDP

        module = self._prepare_model(module, loss_reduction=loss_reduction)
        data_loader = self._prepare_data_loader(data_loader, distributed=distributed)

        sample_rate = 1 / len(data_loader)
        expected_batch_size = int(len(data_loader.dataset) * sample_rate)  # BUG

        optimizer_class = DistributedDPOptimizer if distributed else DPOptimizer
        optimizer = optimizer_class(
            optimizer,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            expected_batch_size=expected_batch_size,
            loss_reduction=loss_reduction,
        )
        return module, optimizer, data_loader
