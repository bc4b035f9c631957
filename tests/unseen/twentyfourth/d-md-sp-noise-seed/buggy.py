"""Flow-matching loss of a video model under sequence parallelism.

After radixark/miles_diffusion PR #102 (miles/backends/fsdp_utils, SFT loss and actor).
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class ParallelState:
    """World of dp_size x sp_size ranks; the ranks of one sequence-parallel group are adjacent."""

    def __init__(self, sp_size):
        self.world_size, self.rank = dist.get_world_size(), dist.get_rank()
        self.sp_size, self.dp_size = sp_size, self.world_size // sp_size
        self.sp_rank, self.dp_rank = self.rank % sp_size, self.rank // sp_size
        self.sp_group = None
        for i in range(self.dp_size):
            ranks = list(range(i * sp_size, (i + 1) * sp_size))
            group = dist.new_group(ranks)
            if self.rank in ranks:
                self.sp_group = group


def sampling_generator(seed, rollout_id, microbatch_id, parallel, device):
    """Reproducible generator for the noise and the timesteps of one micro-batch."""
    g = torch.Generator(device=device)
    step_seed = seed + 1_000_003 * rollout_id + 10_007 * microbatch_id
    g.manual_seed(step_seed + 101 * parallel.rank)  # BUG: the ranks of one sp group share a sample
    return g


def shard_tokens(x, parallel):
    """[B, N, C] -> this rank's part of the N tokens."""
    return x.chunk(parallel.sp_size, dim=1)[parallel.sp_rank].contiguous()


def flow_matching_loss(model, latents, text, generator, parallel):
    # latents: [B, N, C] patch tokens of whole samples, the same on each rank of the sp group
    noise = torch.randn(latents.shape, generator=generator, device=latents.device)
    t = torch.rand(latents.size(0), generator=generator, device=latents.device)
    sigma = t.view(-1, 1, 1)
    noisy = (1 - sigma) * latents + sigma * noise
    target = noise - latents
    # attention in the model runs over the whole sequence with all-to-all in sp_group
    pred = model(shard_tokens(noisy, parallel), t, text, sp_group=parallel.sp_group)
    return F.mse_loss(pred.float(), shard_tokens(target, parallel).float())


def train(model, optimizer, rollout, rollout_id, seed, parallel):
    """One optimizer step; the gradients are averaged over all ranks by FSDP."""
    optimizer.zero_grad()
    for microbatch_id, batch in enumerate(rollout):
        g = sampling_generator(seed, rollout_id, microbatch_id, parallel, batch["latents"].device)
        loss = flow_matching_loss(model, batch["latents"], batch["text"], g, parallel)
        (loss / len(rollout)).backward()
    optimizer.step()
