"""Flow-matching step with sequence parallelism (written from memory of hao-ai-lab/FastVideo)."""
import torch
import torch.distributed as dist


def init_seed(seed):
    torch.manual_seed(seed + dist.get_rank())


def sp_shard(x, sp_group, dim=2):
    # split the frames of a latent [B, C, T, H, W]
    world, rank = dist.get_world_size(sp_group), dist.get_rank(sp_group)
    return x.chunk(world, dim=dim)[rank].contiguous()


class TrainingPipeline:
    def __init__(self, transformer, optimizer, sp_group, seed):
        init_seed(seed)
        self.transformer, self.optimizer, self.sp_group = transformer, optimizer, sp_group

    def sample_timesteps(self, batch_size, device):
        return torch.sigmoid(torch.randn(batch_size, device=device))  # BUG: the shards of one video differ

    def prepare(self, latents, text_embeds):
        # the loader yields the same sample on all ranks of sp_group
        latents = latents.contiguous()
        latents = sp_shard(latents, self.sp_group)
        noise = torch.randn_like(latents)
        t = self.sample_timesteps(latents.size(0), latents.device)
        sigma = t.view(-1, 1, 1, 1, 1)
        noisy = (1.0 - sigma) * latents + sigma * noise
        return noisy, noise - latents, t

    def train_one_step(self, batch):
        latents, text_embeds = batch
        noisy, target, t = self.prepare(latents, text_embeds)
        # attention of the transformer runs over the whole video by all-to-all in sp_group;
        # FSDP averages gradients over all ranks
        pred = self.transformer(noisy, text_embeds, t * 1000)
        loss = (pred.float() - target.float()).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()
