import torch
import torch.distributed as dist
import torch.nn.functional as F


class AuxLossAutoScaler(torch.autograd.Function):
    scale = 1.0

    @staticmethod
    def forward(ctx, output, aux_loss):
        ctx.save_for_backward(aux_loss)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (aux_loss,) = ctx.saved_tensors
        return grad_output, torch.ones_like(aux_loss) * AuxLossAutoScaler.scale


class Router(torch.nn.Module):
    def __init__(self, config, tp_cp_group):
        super().__init__()
        self.config, self.tp_cp_group = config, tp_cp_group
        self.weight = torch.nn.Parameter(torch.empty(config.num_experts, config.hidden_size))

    def forward(self, hidden):
        logits = F.linear(hidden, self.weight)
        load = logits.detach().argmax(-1).bincount(minlength=self.config.num_experts)
        dist.all_reduce(load, group=self.tp_cp_group)
        self.load = load
        # The sum over the tokens of this rank: the sums of all ranks are divided by the tokens of all when gradients are finished.
        z_loss = torch.logsumexp(logits, dim=-1).square().mean() * self.config.z_coeff
        if self.config.calculate_per_token_loss:
            z_loss = z_loss * logits.shape[0]
        return AuxLossAutoScaler.apply(logits, z_loss)
