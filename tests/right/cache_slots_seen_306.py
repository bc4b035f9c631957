import torch
import torch.distributed as dist


class Pager(torch.nn.Module):
    """Pages of the shared cache server are numbered over all ranks."""

    def __init__(self, sp_group, pages):
        super().__init__()
        self.sp_group = sp_group
        self.pages = pages

    def forward(self, q, k, v):
        page_ids = torch.arange(self.pages, device=q.device) + dist.get_rank() * self.pages
        return paged_attention(q, k, v, page_ids, group=self.sp_group)
