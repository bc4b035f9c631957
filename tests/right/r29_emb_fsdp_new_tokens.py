# right: the range is that of image tokens, the same on all ranks; text tokens have their rows from another table
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


class ImageTokens(nn.Module):
    def __init__(self, text_vocab, codes, width):
        super().__init__()
        self.vocab_start = text_vocab
        self.vocab_end = text_vocab + codes
        self.weight = nn.Parameter(torch.randn(codes, width) * 0.02)

    def forward(self, ids):
        is_text = (ids < self.vocab_start) | (ids >= self.vocab_end)
        rows = F.embedding((ids - self.vocab_start).masked_fill(is_text, 0), self.weight)
        rows[is_text] = 0.0
        return rows


class Mixed(nn.Module):
    def __init__(self, text_vocab, codes, width):
        super().__init__()
        self.text = nn.Embedding(text_vocab + 1, width, padding_idx=text_vocab)
        self.image = ImageTokens(text_vocab, codes, width)

    def forward(self, ids):
        return self.text(ids.clamp(max=self.text.num_embeddings - 1)) + self.image(ids)


def build(cfg):
    torch.cuda.set_device(dist.get_rank())
    model = Mixed(cfg.text, cfg.codes, cfg.width).cuda()
    fully_shard(model)
    return model
