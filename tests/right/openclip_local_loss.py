"""open_clip's local loss: own rows against the columns of all ranks, gather with gradient."""
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class LocalClipLoss(torch.nn.Module):
    def __init__(self, rank, world_size):
        super().__init__()
        self.rank = rank
        self.world_size = world_size
        self.cache = {}

    def labels(self, n, device):
        key = (n, device)
        if key not in self.cache:
            self.cache[key] = torch.arange(n, device=device) + n * self.rank
        return self.cache[key]

    def forward(self, image, text, scale):
        if self.world_size > 1:
            all_image = torch.cat(torch.distributed.nn.all_gather(image), dim=0)
            all_text = torch.cat(torch.distributed.nn.all_gather(text), dim=0)
        else:
            all_image, all_text = image, text
        per_image = scale * image @ all_text.T
        per_text = scale * text @ all_image.T
        labels = self.labels(image.shape[0], image.device)
        return (F.cross_entropy(per_image, labels) + F.cross_entropy(per_text, labels)) / 2


def train(model, loader, optimizer):
    loss_fn = LocalClipLoss(dist.get_rank(), dist.get_world_size())
    for images, texts in loader:
        optimizer.zero_grad()
        image, text, scale = model(images, texts)
        loss = loss_fn(image, text, scale)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.module.logit_scale.clamp_(0, 4.6052)


if __name__ == "__main__":
    dist.init_process_group("nccl")
    from my_models import build_clip, build_loader

    clip = DDP(build_clip().cuda())
    train(clip, build_loader(), torch.optim.AdamW(clip.parameters(), lr=1e-3))
