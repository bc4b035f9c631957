"""LoRA training of a diffusion model; the adapters hook into the U-Net's linears."""
# thread: kohya-ss/sd-scripts#2244
import torch
import torch.nn.functional as F
from accelerate import Accelerator


class LoRAModule(torch.nn.Module):
    def __init__(self, linear, rank):
        super().__init__()
        self.down = torch.nn.Linear(linear.in_features, rank, bias=False)
        self.up = torch.nn.Linear(rank, linear.out_features, bias=False)
        torch.nn.init.zeros_(self.up.weight)
        original = linear.forward
        linear.forward = lambda x: original(x) + self.up(self.down(x))


class LoRANetwork(torch.nn.Module):
    def __init__(self, unet, rank=16):
        super().__init__()
        linears = [m for m in unet.modules() if isinstance(m, torch.nn.Linear)]
        self.loras = torch.nn.ModuleList(LoRAModule(m, rank) for m in linears)


def train(unet, loader, scheduler, lr):
    accelerator = Accelerator()
    unet.requires_grad_(False).to(accelerator.device)
    network = LoRANetwork(unet)
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr)
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    for latents, text in loader:
        noise = torch.randn_like(latents)
        t = torch.randint(0, 1000, (latents.size(0),), device=latents.device)
        pred = unet(scheduler.add_noise(latents, noise, t), t, text).sample
        loss = F.mse_loss(pred, noise)
        accelerator.backward(loss)  # BUG: network's DDP forward is never called, so no rank reduces
        accelerator.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
