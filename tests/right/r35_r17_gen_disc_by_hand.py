import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from diffusers import AutoencoderKL


def train(loader, disc):
    """VQGAN: the autoencoder is wrapped; the small discriminator is averaged by hand."""
    accelerator = Accelerator()
    vae = AutoencoderKL.from_pretrained("stabilityai/sd-vae-ft-mse")
    disc = disc.to(accelerator.device)
    opt_g = torch.optim.Adam(vae.parameters(), lr=1e-4)
    opt_d = torch.optim.Adam(disc.parameters(), lr=1e-4)
    vae, opt_g, loader = accelerator.prepare(vae, opt_g, loader)
    for x in loader:
        rec = vae(x).sample
        loss = F.l1_loss(rec, x) - 0.1 * disc(rec).mean()
        accelerator.backward(loss)
        opt_g.step()
        opt_g.zero_grad()
        opt_d.zero_grad()
        d_loss = F.relu(1 - disc(x)).mean() + F.relu(1 + disc(rec.detach())).mean()
        d_loss = d_loss / accelerator.num_processes
        d_loss.backward()
        for p in disc.parameters():
            dist.all_reduce(p.grad)
        opt_d.step()
