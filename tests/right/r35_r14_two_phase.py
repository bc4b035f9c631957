import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModel


def train(loader, probe_loader, classes):
    """First the encoder is trained, wrapped; then a probe of it, which is reduced by hand."""
    accelerator = Accelerator()
    encoder = AutoModel.from_pretrained("facebook/dinov2-small")
    optimizer = torch.optim.AdamW(encoder.parameters())
    encoder, optimizer, loader = accelerator.prepare(encoder, optimizer, loader)
    for a, b in loader:
        za, zb = encoder(a).pooler_output, encoder(b).pooler_output
        accelerator.backward(F.mse_loss(za, zb.detach()))
        optimizer.step()
        optimizer.zero_grad()
    head = torch.nn.Linear(384, classes).to(accelerator.device)
    head_opt = torch.optim.SGD(head.parameters(), lr=0.1)
    for x, y in probe_loader:
        with torch.no_grad():
            z = encoder(x).pooler_output
        n = accelerator.reduce((y >= 0).sum(), "sum")
        loss = F.cross_entropy(head(z), y, reduction="sum", ignore_index=-1) / n
        loss.backward()
        for p in head.parameters():
            dist.all_reduce(p.grad)
        head_opt.step()
        head_opt.zero_grad()
