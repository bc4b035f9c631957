# thread: https://github.com/radixark/miles_diffusion/pull/102
"""Flow-matching finetuning of a video transformer with sequence parallelism."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh


class Layout:
    """Consecutive ranks share one sample; the others are data replicas."""

    def __init__(self, sp_size):
        dp_size = dist.get_world_size() // sp_size
        mesh = init_device_mesh("cuda", (dp_size, sp_size), mesh_dim_names=("dp", "sp"))
        self.dp_size, self.sp_size = dp_size, sp_size
        self.dp_rank = mesh["dp"].get_local_rank()
        self.sp_rank = mesh["sp"].get_local_rank()
        self.sp_group = mesh["sp"].get_group()


class FlowMatching:
    def __init__(self, seed, shift, layout, device):
        self.shift, self.layout = shift, layout
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(seed + layout.dp_rank)

    def timesteps(self, batch, device):
        u = torch.rand(batch, generator=self.generator, device=device)
        return self.shift * u / (1 + (self.shift - 1) * u)

    def noise_like(self, latents):
        return torch.randn(
            latents.shape, generator=self.generator, device=latents.device, dtype=latents.dtype
        )

    def make(self, latents):
        t = self.timesteps(latents.shape[0], latents.device)
        noise = self.noise_like(latents)
        w = t.view(-1, *[1] * (latents.dim() - 1)).to(latents.dtype)
        return (1 - w) * latents + w * noise, noise - latents, t


def patchify(x, patch):
    b, c, f, h, w = x.shape
    x = x.view(b, c, f, h // patch, patch, w // patch, patch)
    return x.permute(0, 2, 3, 5, 1, 4, 6).reshape(b, f * (h // patch) * (w // patch), -1)


def own_tokens(tokens, layout):
    """The token count is a multiple of the group's size."""
    return tokens.chunk(layout.sp_size, dim=1)[layout.sp_rank]


class SFTActor:
    def __init__(self, transformer, optimizer, loader, layout, args):
        self.model, self.optimizer, self.layout, self.args = transformer, optimizer, layout, args
        self.loader = loader.for_replica(layout.dp_rank, layout.dp_size)
        self.flow = FlowMatching(args.seed, args.shift, layout, torch.device("cuda"))

    def loss(self, batch):
        latents = batch["latents"].cuda()
        noisy, velocity, t = self.flow.make(latents)
        inputs = own_tokens(patchify(noisy, self.args.patch), self.layout)
        target = own_tokens(patchify(velocity, self.args.patch), self.layout)
        prediction = self.model(
            inputs, timestep=t * 1000, text=batch["text"].cuda(), sp_group=self.layout.sp_group
        )
        return F.mse_loss(prediction.float(), target.float())

    def train(self):
        """FSDP over all ranks averages the gradients."""
        for step, batch in enumerate(self.loader):
            loss = self.loss(batch) / self.args.accumulation
            loss.backward()
            if (step + 1) % self.args.accumulation == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
