"""Mixed precision optimizer of a model with tensor parallel dense layers and expert parallel MoE layers."""
import dataclasses

import torch
import torch.distributed as dist


@dataclasses.dataclass(frozen=True)
class Groups:
    """tp and ep cover the same ranks when ep == tp; model = tp x pp."""

    tp: dist.ProcessGroup
    expert_tp: dist.ProcessGroup
    dp: dist.ProcessGroup
    expert_dp: dist.ProcessGroup
    model: dist.ProcessGroup


def is_expert(param):
    return getattr(param, "is_expert", False)


def is_split(param):
    return getattr(param, "tensor_parallel", False)


class GradientBuffer:
    """Averages gradients over the ranks that hold the same parameter."""

    def __init__(self, params, groups, global_data_ranks):
        self.params = params
        self.groups = groups
        self.global_data_ranks = global_data_ranks

    def reduce(self):
        handles = []
        for param in self.params:
            group = self.groups.expert_dp if is_expert(param) else self.groups.dp
            param.main_grad.div_(self.global_data_ranks)
            handles.append(dist.all_reduce(param.main_grad, group=group, async_op=True))
        for handle in handles:
            handle.wait()


class ClippedOptimizer:
    def __init__(self, model, groups, lr, max_norm, weight_decay=0.1):
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.groups = groups
        self.max_norm = max_norm
        self.masters = []
        for param in self.params:
            param.main_grad = torch.zeros_like(param, dtype=torch.float32)
            self.masters.append(param.detach().clone().float())
        self.buffer = GradientBuffer(self.params, groups, groups.dp.size())
        self.inner = torch.optim.AdamW(self.masters, lr=lr, weight_decay=weight_decay)

    def counts_here(self, param):
        """True on exactly one of the ranks of the model group that hold the same values."""
        if is_split(param):
            return True
        group = self.groups.expert_tp if is_expert(param) else self.groups.tp
        return group.rank() == 0

    def gradient_norm(self):
        squares = [p.main_grad.square().sum() for p in self.params if self.counts_here(p)]
        total = torch.stack(squares).sum() if squares else torch.zeros((), device="cuda")
        dist.all_reduce(total, group=self.groups.model)
        return total.sqrt()

    def accumulate(self):
        for param in self.params:
            if param.grad is not None:
                param.main_grad.add_(param.grad)
                param.grad = None

    @torch.no_grad()
    def step(self):
        self.buffer.reduce()
        norm = self.gradient_norm()
        factor = (self.max_norm / (norm + 1e-6)).clamp(max=1.0)
        for param, master in zip(self.params, self.masters):
            master.grad = param.main_grad * factor
        self.inner.step()
        for param, master in zip(self.params, self.masters):
            param.copy_(master)
            param.main_grad.zero_()
            master.grad = None
        return norm


def training_loop(model, optimizer, schedule, loss_fn, batches, microbatches):
    for batch in batches:
        for micro in batch.chunk(microbatches):
            loss = loss_fn(model(micro)) / microbatches
            loss.backward()
            optimizer.accumulate()
        norm = optimizer.step()
        schedule.step()
        if dist.get_rank() == 0:
            print(f"grad norm {norm.item():.3f}")
