# kohya-ss/sd-scripts, issue 924 / pull request 989 - https://github.com/kohya-ss/sd-scripts/pull/989 (read)
# LoRA replaces the forward of the linear layers of the U-Net; the DDP-wrapped network itself is never
# called, so its gradients are never reduced. The pull request reduces them by hand after backward.
"""Train a LoRA network for a diffusion U-Net with accelerate."""
import torch
from accelerate import Accelerator


class LoRAModule(torch.nn.Module):
    def __init__(self, org_module, rank, multiplier=1.0):
        super().__init__()
        self.lora_down = torch.nn.Linear(org_module.in_features, rank, bias=False)
        self.lora_up = torch.nn.Linear(rank, org_module.out_features, bias=False)
        torch.nn.init.zeros_(self.lora_up.weight)
        self.multiplier, self.org_module = multiplier, [org_module]

    def apply_to(self):
        self.org_forward = self.org_module[0].forward
        self.org_module[0].forward = self.forward

    def forward(self, x):
        return self.org_forward(x) + self.lora_up(self.lora_down(x)) * self.multiplier


class NetworkTrainer:
    def all_reduce_network(self, accelerator, network):
        for param in network.parameters():
            if param.grad is not None:
                param.grad = accelerator.reduce(param.grad, reduction="mean")

    def train(self, args, unet, network, optimizer, dataloader, compute_loss):
        accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
        for lora in network.loras:
            lora.apply_to()
        network, optimizer, dataloader = accelerator.prepare(network, optimizer, dataloader)
        unet.requires_grad_(False)
        for batch in dataloader:
            with accelerator.accumulate(network):
                loss = compute_loss(unet, batch)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    self.all_reduce_network(accelerator, network)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
