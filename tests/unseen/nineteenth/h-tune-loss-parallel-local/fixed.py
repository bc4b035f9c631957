"""Tensor-parallel plan with loss parallelism (written from memory of torchtune and the PyTorch TP tutorial)."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)


class LanguageModel(torch.nn.Module):
    def __init__(self, vocab_size, dim, layers):
        super().__init__()
        self.tok_embeddings = torch.nn.Embedding(vocab_size, dim)
        self.layers = torch.nn.ModuleList(layers)  # in and out: sharded on the sequence
        self.norm = torch.nn.RMSNorm(dim)
        self.output = torch.nn.Linear(dim, vocab_size, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


def apply_tp(model, tp_mesh):
    plan = {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(
            input_layouts=Shard(1),
            output_layouts=Shard(-1),
            use_local_output=False,
        ),
    }
    return parallelize_module(model, tp_mesh, plan)


def train_step(model, tokens, labels, optimizer):
    # tokens, labels: the same on all tensor-parallel ranks
    with loss_parallel():
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
