"""VICReg loss.

lightly-ai/lightly 7851469681b6, lightly/loss/vicreg_loss.py
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        output = [torch.empty_like(input) for _ in range(dist.get_world_size())]
        dist.all_gather(output, input.contiguous())
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        all_gradients = torch.stack(grads)
        dist.all_reduce(all_gradients)
        return all_gradients[dist.get_rank()]


def gather(input):
    """Gathers this tensor from all processes. Supports backprop."""
    return GatherLayer.apply(input)


class VICRegLoss(torch.nn.Module):
    """If gather_distributed, the statistics are those of the batches of all processes."""

    def __init__(self, lambda_param=25.0, mu_param=25.0, nu_param=1.0, gather_distributed=False, eps=0.0001):
        super().__init__()
        self.lambda_param, self.mu_param, self.nu_param = lambda_param, mu_param, nu_param
        self.gather_distributed = gather_distributed
        self.eps = eps

    def forward(self, z_a: torch.Tensor, z_b: torch.Tensor) -> torch.Tensor:
        # invariance term of the loss
        repr_loss = F.mse_loss(z_a, z_b)

        # gather all batches
        if self.gather_distributed and dist.is_initialized() and dist.get_world_size() > 1:
            dist.all_reduce(z_a)  # BUG
            dist.all_reduce(z_b)

        # normalize repr. along the batch dimension
        z_a = z_a - z_a.mean(0)
        z_b = z_b - z_b.mean(0)
        N, D = z_a.size()

        std_x = torch.sqrt(z_a.var(dim=0) + self.eps)
        std_y = torch.sqrt(z_b.var(dim=0) + self.eps)
        std_loss = 0.5 * (torch.mean(F.relu(1 - std_x)) + torch.mean(F.relu(1 - std_y)))

        cov_x = (z_a.T @ z_a) / (N - 1)
        cov_y = (z_b.T @ z_b) / (N - 1)
        off_diag = ~torch.eye(D, dtype=torch.bool, device=z_a.device)
        cov_loss = cov_x[off_diag].pow(2).sum().div(D) + cov_y[off_diag].pow(2).sum().div(D)

        return self.lambda_param * repr_loss + self.mu_param * std_loss + self.nu_param * cov_loss
