# the head keeps its logits whole, or a loss over parts
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput, loss_parallel, parallelize_module


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.RMSNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, vocab, dim, n):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(n)])
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def build_plan(loss_parallel_on):
    return {
        "embed": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(
            output_layouts=Shard(-1) if loss_parallel_on else Replicate(), use_local_output=not loss_parallel_on
        ),
    }


def apply_tp(model, mesh, loss_parallel_on):
    parallelize_module(model, mesh, build_plan(loss_parallel_on))
    plan = {}
    for i in range(len(model.blocks)):
        plan[f"blocks.{i}.up"] = ColwiseParallel()
        plan[f"blocks.{i}.down"] = RowwiseParallel()
    parallelize_module(model, mesh, plan)
    return model


def train(cfg, mesh, batches):
    model = Model(cfg.vocab, cfg.dim, cfg.n)
    apply_tp(model, mesh, cfg.loss_parallel)
    for tokens, labels in batches:
        if cfg.loss_parallel:
            with loss_parallel():
                logits = model(tokens)
                loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
                loss.backward()
        else:
            logits = model(tokens)
            loss = F.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1))
            loss.backward()
