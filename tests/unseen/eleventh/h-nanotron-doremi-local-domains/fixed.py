"""DoReMi proxy training: weights of the data domains, updated from excess losses.

Reduced from huggingface/nanotron 2c2999999a (add sync doremi loss across dp ranks).
"""
import torch
import torch.distributed as dist
from nanotron.parallel import ParallelContext

# spmd: mesh dense = dp, tp


class DoReMiLossForProxyTraining:
    def __init__(self, doremi_context, parallel_context: ParallelContext):
        self.doremi_context = doremi_context
        # spmd: group self.dp_pg = dp
        self.dp_pg = parallel_context.dp_pg

    @torch.no_grad()
    # spmd: excess_losses: {dp: V, tp: R}, domain_idxs: {dp: V, tp: R}
    def update_domain_weights(self, excess_losses, domain_idxs):
        ctx = self.doremi_context
        dp_size = dist.get_world_size(self.dp_pg)
        excess_losses_dp = [torch.empty_like(excess_losses) for _ in range(dp_size)]
        dist.all_gather(excess_losses_dp, excess_losses.contiguous(), group=self.dp_pg)
        excess_losses = torch.cat(excess_losses_dp, dim=0)
        domain_ids_dp = [torch.empty_like(domain_idxs) for _ in range(dp_size)]
        dist.all_gather(domain_ids_dp, domain_idxs.contiguous(), group=self.dp_pg)
        domain_idxs = torch.cat(domain_ids_dp, dim=0)

        domain_losses = torch.zeros(ctx.num_domains, device="cuda")
        domain_losses.index_add_(0, domain_idxs, excess_losses.sum(dim=-1))
        samples_per_domain = torch.bincount(domain_idxs, minlength=ctx.num_domains).clamp(min=1)
        normalized = domain_losses / (samples_per_domain * excess_losses.shape[1])

        log_weights = torch.log(ctx.domain_weights) + ctx.step_size * normalized
        weights = torch.softmax(log_weights, dim=-1)
        weights = (1 - ctx.smoothing_param) * weights + ctx.smoothing_param / ctx.num_domains
        # the sampler of each data rank draws the next batch from these
        ctx.domain_weights = weights  # spmd: {dp: R, tp: R}

    def __call__(self, losses, ref_losses, domain_idxs):
        self.update_domain_weights((losses - ref_losses).detach().clamp(min=0), domain_idxs.view(-1))
        return losses.mean()
