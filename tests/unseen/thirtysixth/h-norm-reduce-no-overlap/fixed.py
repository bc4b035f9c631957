# thread: https://github.com/InternLM/InternLM/pull/534
"""ZeRO-1 optimizer with hooks that reduce gradients during the backward pass."""
import torch
import torch.distributed as dist
from torch.optim import Optimizer

IS_SEQUENCE_PARALLEL = "is_sequence_parallel"


class ReduceBucket:
    def __init__(self, limit):
        self.limit = limit
        self.params, self.numel = [], 0

    def add(self, param):
        self.params.append(param)
        self.numel += param.numel()

    def full(self, param):
        return self.numel + param.numel() > self.limit

    def clear(self):
        self.params, self.numel = [], 0


class HybridZeroOptimizer:
    def __init__(self, optimizer: Optimizer, gpc, cfg):
        self.optim = optimizer
        self.dp_group = gpc.get_group("data")
        self.tp_group = gpc.get_group("tensor")
        self.dp_world_size = dist.get_world_size(self.dp_group)
        self._overlap_sync_grad = cfg.overlap_sync_grad
        self._use_sequence_parallel = cfg.parallel.sequence_parallel
        self._bucket = ReduceBucket(cfg.reduce_bucket_size)
        self.skip_grad_reduce = False
        self._fp16_param_groups = [g["params"] for g in optimizer.param_groups]
        self._attach_reduction_hook()

    def _attach_reduction_hook(self):
        for group in self._fp16_param_groups:
            for param in group:
                if param.requires_grad:
                    self._define_and_attach(param)

    def _define_and_attach(self, param):
        def reduce_grad_hook(p):
            if not self.skip_grad_reduce:
                self._store_and_try_reduce(p)

        def reduce_norm_hook(p):
            if not self.skip_grad_reduce:
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=self.tp_group)

        if self._use_sequence_parallel and getattr(param, IS_SEQUENCE_PARALLEL, False):
            param.register_post_accumulate_grad_hook(reduce_norm_hook)
        if self._overlap_sync_grad:
            param.register_post_accumulate_grad_hook(reduce_grad_hook)

    def _store_and_try_reduce(self, param):
        if self._bucket.full(param):
            self._reduce_bucket()
        self._bucket.add(param)

    def _reduce_bucket(self):
        grads = [p.grad for p in self._bucket.params]
        if grads:
            flat = torch._utils._flatten_dense_tensors(grads)
            flat.div_(self.dp_world_size)
            dist.all_reduce(flat, group=self.dp_group)
            for grad, new in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads)):
                grad.copy_(new)
        self._bucket.clear()

    def _reduce_all(self):
        for group in self._fp16_param_groups:
            for param in group:
                if param.grad is not None:
                    self._store_and_try_reduce(param)
        self._reduce_bucket()

    @torch.no_grad()
    def step(self):
        if self._overlap_sync_grad:
            self._reduce_bucket()
        else:
            self._reduce_all()
        self.optim.step()
        self.optim.zero_grad(set_to_none=True)


class RMSNorm(torch.nn.Module):
    def __init__(self, hidden, eps=1e-6, sequence_parallel=True):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden))
        self.eps = eps
        setattr(self.weight, IS_SEQUENCE_PARALLEL, sequence_parallel)

    def forward(self, hidden_states):
        # hidden_states: [seq / tp, batch, hidden]
        variance = hidden_states.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden_states * torch.rsqrt(variance + self.eps)).type_as(hidden_states)


def train_step(model, optimizer: HybridZeroOptimizer, batches, loss_fn):
    for i, batch in enumerate(batches):
        optimizer.skip_grad_reduce = i != len(batches) - 1
        loss = loss_fn(model(batch["input_ids"]), batch["labels"]) / len(batches)
        loss.backward()
    optimizer.step()
