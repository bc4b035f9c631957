# right: the range is that of digits in the vocabulary, and the table is whole: the rank only picks the device
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class DigitEmbedding(nn.Module):
    """Only ids of digits have a vector. The rank picks the device."""

    def __init__(self, tokenizer, width):
        super().__init__()
        self.device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
        self.first = tokenizer.convert_tokens_to_ids("0")
        self.last = tokenizer.convert_tokens_to_ids("9") + 1
        self.weight = nn.Parameter(torch.zeros(self.last - self.first, width, device=self.device))

    def forward(self, ids):
        other = (ids < self.first) | (ids >= self.last)
        v = F.embedding((ids - self.first).masked_fill(other, 0), self.weight)
        v = v.masked_fill(other.unsqueeze(-1), 0.0)
        return v
