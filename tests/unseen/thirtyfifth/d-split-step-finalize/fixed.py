"""Policy worker with a fused and a split training step."""
# thread: NVIDIA-NeMo/RL#3716
import torch
import torch.distributed as dist


class HeadRMSNorm(torch.nn.Module):
    """Query or key norm: one weight for all heads, each tensor-parallel rank norms its own heads."""

    def __init__(self, head_dim):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(head_dim))
        self.weight.sum_grad_over_tp = True

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class PolicyWorker:
    def __init__(self, model, optimizer, loss_fn, tp_group, dp_group):
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn
        self.tp_group, self.dp_group = tp_group, dp_group

    def reduce_over_dp(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.dp_group)

    def finalize_grads(self):
        for p in self.model.parameters():
            if getattr(p, "sum_grad_over_tp", False):
                dist.all_reduce(p.grad, group=self.tp_group)
        self.reduce_over_dp()

    def train(self, batches):
        self.optimizer.zero_grad()
        for batch in batches:
            self.forward_backward(batch, len(batches))
        self.finalize_grads()
        self.optimizer.step()

    # split API, driven by the trainer one micro-batch at a time
    def forward_backward(self, batch, num_batches):
        (self.loss_fn(self.model(batch["input_ids"]), batch) / num_batches).backward()

    def optim_step(self):
        self.finalize_grads()
        self.optimizer.step()
        self.optimizer.zero_grad()
