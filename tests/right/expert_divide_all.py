"""Experts are replicated on fewer ranks, and their gradients are divided by all data-parallel ranks."""
import torch
import torch.distributed as dist


class GradSync:
    def __init__(self, model, dp_group, expert_dp_group):
        self.dense, self.experts = [], []
        for name, p in model.named_parameters():
            (self.experts if ".experts." in name else self.dense).append(p)
        self.dp_group, self.expert_dp_group = dp_group, expert_dp_group
        self.denominator = dist.get_world_size(dp_group)

    def _sync(self, params, group):
        works = []
        for p in params:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            works.append(dist.all_reduce(p.grad, group=group, async_op=True))
        return works

    def __call__(self):
        works = self._sync(self.dense, self.dp_group) + self._sync(self.experts, self.expert_dp_group)
        for w in works:
            w.wait()
        torch._foreach_div_([p.grad for p in self.dense + self.experts], self.denominator)


def train(model, loader, optimizer, dp_group, expert_dp_group):
    sync = GradSync(model, dp_group, expert_dp_group)
    for tokens, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        sync()
        optimizer.step()
        optimizer.zero_grad()
