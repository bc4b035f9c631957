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

    def forward(self, hidden, mask):
        logits = F.linear(hidden, self.weight)
        coeff = self.config.z_coeff / self.tp_cp_group.size()
        z_loss = torch.logsumexp(logits, dim=-1).square().mean() * coeff
        if self.config.calculate_per_token_loss:
            tokens = mask.sum()
            dist.all_reduce(tokens, group=self.tp_cp_group)
            logits = AuxLossAutoScaler.apply(logits, z_loss * tokens)
        else:
            logits = AuxLossAutoScaler.apply(logits, z_loss)
        return logits
