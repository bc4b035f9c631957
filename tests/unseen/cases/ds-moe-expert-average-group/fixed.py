"""Average the gradients of dense and of expert parameters."""
# microsoft/DeepSpeed PR 5259: experts get the tokens of all ranks of the expert-parallel group: sum over the expert-data-parallel
# group, but divide by the data-parallel size.
import torch
import torch.distributed as dist


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, input):
        ctx.group = group
        output = torch.empty_like(input)
        dist.all_to_all_single(output, input.contiguous(), group=group)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        return None, _AllToAll.apply(ctx.group, grad_output)


class MOELayer(torch.nn.Module):
    def __init__(self, gate, experts, ep_group):
        super().__init__()
        self.gate = gate
        self.experts = experts
        for p in self.experts.parameters():
            p.allreduce = False
        self.ep_group = ep_group

    def forward(self, x):
        combine, dispatched = self.gate(x)
        dispatched = _AllToAll.apply(self.ep_group, dispatched)
        out = self.experts(dispatched)
        out = _AllToAll.apply(self.ep_group, out)
        return torch.einsum("sec,ecm->sm", combine, out)


def is_moe_param(param):
    return hasattr(param, "allreduce") and not param.allreduce


class ZeroOptimizer:
    def __init__(self, params, optimizer, dp_group, expert_dp_group):
        self.params, self.optimizer = list(params), optimizer
        self.dp_group = dp_group
        self.expert_dp_group = expert_dp_group

    def average_gradients(self):
        for param in self.params:
            if param.grad is None:
                continue
            if is_moe_param(param):
                param.grad.div_(dist.get_world_size(group=self.dp_group))
                dist.all_reduce(param.grad, group=self.expert_dp_group)
            else:
                param.grad.div_(dist.get_world_size(group=self.dp_group))
                dist.all_reduce(param.grad, group=self.dp_group)

    def step(self):
        self.average_gradients()
        self.optimizer.step()


def train_step(model, optimizer: ZeroOptimizer, batch, target):
    loss = torch.nn.functional.mse_loss(model(batch), target)
    loss.backward()
    optimizer.step()
    return loss.detach()
