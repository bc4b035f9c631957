"""Train a LoRA network that patches the forward of a frozen U-Net."""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn


class LoRAModule(nn.Module):
    def __init__(self, org_module, dim=4, alpha=1.0):
        super().__init__()
        self.lora_down = nn.Linear(org_module.in_features, dim, bias=False)
        self.lora_up = nn.Linear(dim, org_module.out_features, bias=False)
        nn.init.zeros_(self.lora_up.weight)
        self.scale = alpha / dim
        self.org_module = [org_module]

    def apply_to(self):
        org = self.org_module[0]
        self.org_forward = org.forward
        org.forward = self.forward

    def forward(self, x):
        return self.org_forward(x) + self.lora_up(self.lora_down(x)) * self.scale


class LoRANetwork(nn.Module):
    def __init__(self, unet, dim):
        super().__init__()
        targets = [m for m in unet.modules() if isinstance(m, nn.Linear)]
        self.unet_loras = nn.ModuleList(LoRAModule(m, dim) for m in targets)

    def apply_to(self):
        for lora in self.unet_loras:
            lora.apply_to()


def train(unet, noise_scheduler, dataloader, args):
    accelerator = Accelerator(mixed_precision=args.mixed_precision)
    network = LoRANetwork(unet, args.network_dim)
    network.apply_to()
    unet.requires_grad_(False)
    optimizer = torch.optim.AdamW(network.parameters(), lr=args.learning_rate)
    network, optimizer, dataloader = accelerator.prepare(network, optimizer, dataloader)
    unet.to(accelerator.device)

    for batch in dataloader:
        latents = batch["latents"]
        noise = torch.randn_like(latents)
        steps = noise_scheduler.config.num_train_timesteps
        t = torch.randint(0, steps, (latents.shape[0],), device=latents.device)
        noisy = noise_scheduler.add_noise(latents, noise, t)
        pred = unet(noisy, t, batch["text_embeds"]).sample
        loss = F.mse_loss(pred.float(), noise.float())
        accelerator.backward(loss)
        for param in network.parameters():
            if param.grad is not None:
                param.grad = accelerator.reduce(param.grad, reduction="mean")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return accelerator.unwrap_model(network)
