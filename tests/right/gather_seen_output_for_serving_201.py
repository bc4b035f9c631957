# Right: inference=True is only built in serve(), which passes no labels; with labels the head is built with inference=False.
import torch
from torch import nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import ColumnParallelLinear, gather_from_tensor_model_parallel_region, vocab_parallel_cross_entropy


class Head(nn.Module):
    def __init__(self, config, vocab, inference=False):
        super().__init__()
        self.lin = ColumnParallelLinear(config.hidden_size, vocab, config=config, init_method=config.init_method, bias=False, gather_output=inference)

    def forward(self, x, labels=None):
        logits = self.lin(x)[0]
        if labels is None:
            return logits
        return vocab_parallel_cross_entropy(logits.float(), labels).mean()


def train(config, x, labels):
    head = Head(config, 32000)
    head(x, labels).backward()


@torch.no_grad()
def serve(config, x):
    head = Head(config, 32000, inference=True)
    return head(x).argmax(-1)
