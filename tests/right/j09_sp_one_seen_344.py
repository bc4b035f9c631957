import torch
import torch.distributed as dist


class Parallel:
    def __init__(self, sp_size, group):
        self.rank, self.sp_size, self.group = dist.get_rank(), sp_size, group
        self.sp_rank, self.dp_rank = self.rank % sp_size, self.rank // sp_size


def generator_of(seed, parallel, device):
    g = torch.Generator(device=device)
    g.manual_seed(seed + parallel.rank)
    return g


def own_tokens(x, parallel):
    return x.chunk(parallel.sp_size, dim=1)[parallel.sp_rank].contiguous()


def noisy_tokens(latents, generator, parallel):
    assert parallel.sp_size == 1
    t = torch.rand(latents.size(0), generator=generator, device=latents.device).view(-1, 1, 1)
    noise = torch.randn(latents.shape, generator=generator, device=latents.device)
    return own_tokens((1 - t) * latents + t * noise, parallel)


def train(model, batches, seed, parallel, device):
    g = generator_of(seed, parallel, device)
    for latents in batches:
        model(noisy_tokens(latents, g, parallel)).mean().backward()
