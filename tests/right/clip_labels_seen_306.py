import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dnnf


class ClipLoss(torch.nn.Module):
    """Each rank has images of its own; the encoder spreads their patches over `cp_group` and gives each rank its images back."""

    def __init__(self, encoder, cp_group):
        super().__init__()
        self.encoder, self.cp_group = encoder, cp_group

    def forward(self, image, text):
        image = self.encoder(image, group=self.cp_group)
        every = torch.cat(dnnf.all_gather(text))
        n = image.size(0)
        labels = torch.arange(n, device=image.device) + dist.get_rank() * n
        return torch.nn.functional.cross_entropy(image @ every.t(), labels)
