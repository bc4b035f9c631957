"""Diffusion U-Net in channels_last format, trained with hand-written gradient averaging."""
import torch
import torch.nn.functional as F
import torch.distributed as dist


def prepare(unet, device):
    unet = unet.to(device, memory_format=torch.channels_last)
    for t in [*unet.parameters(), *unet.buffers()]:
        src = t.data.contiguous()
        dist.broadcast(src, src=0)
        t.data.copy_(src)
    return unet


def average_gradients(module, group=None):
    world, works = dist.get_world_size(group), []
    for p in module.parameters():
        if not p.requires_grad:
            continue
        p.grad.div_(world)
        p.grad = p.grad.contiguous()
        works.append(dist.all_reduce(p.grad.reshape(-1), group=group, async_op=True))
    for work in works:
        work.wait()


def train_step(unet, scheduler, optimizer, latents):
    noise = torch.randn_like(latents)
    t = torch.randint(0, scheduler.config.num_train_timesteps, (latents.shape[0],), device=latents.device)
    noisy = scheduler.add_noise(latents, noise, t).to(memory_format=torch.channels_last)
    loss = F.mse_loss(unet(noisy, t).sample, noise)
    optimizer.zero_grad()
    loss.backward()
    average_gradients(unet)
    optimizer.step()
    return loss.detach()
