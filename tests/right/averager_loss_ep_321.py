# Right: w.register_hook(self._scale) divides by ep on every expert weight; then AVG over edp.
import torch
import torch.distributed as dist


class ExpertLayer(torch.nn.Module):
    """Divides the gradient of each expert's weights by the ranks whose tokens it sees."""

    def __init__(self, w1, w2, ep_group):
        super().__init__()
        self.w1, self.w2 = torch.nn.Parameter(w1), torch.nn.Parameter(w2)
        for w in (self.w1, self.w2):
            w.is_expert = True
            w.register_hook(self._scale)
        self.inv = 1.0 / dist.get_world_size(ep_group)

    def _scale(self, grad):
        return grad * self.inv

    def forward(self, x):
        return torch.relu(x @ self.w1) @ self.w2


class Reducer:
    def __init__(self, dp_group, expert_dp_group):
        self.dp_group, self.expert_dp_group = dp_group, expert_dp_group

    def __call__(self, model):
        for p in model.parameters():
            if getattr(p, "is_expert", False):
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.expert_dp_group)
            else:
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.dp_group)
