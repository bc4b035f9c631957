"""GPipe style pipeline with data parallel replicas and tied input/output embeddings."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class PipelineTopology:
    """Rank layout: consecutive ranks are data parallel replicas of one stage."""

    def __init__(self, pp_size):
        world, rank = dist.get_world_size(), dist.get_rank()
        assert pp_size > 1 and world % pp_size == 0
        self.pp_size, self.dp_size = pp_size, world // pp_size
        self.pp_rank, self.dp_rank = divmod(rank, self.dp_size)
        self.dp_group = self.embedding_group = None
        for stage in range(pp_size):
            ranks = list(range(stage * self.dp_size, (stage + 1) * self.dp_size))
            group = dist.new_group(ranks)
            if rank in ranks:
                self.dp_group = group
        for replica in range(self.dp_size):
            ranks = [replica, (pp_size - 1) * self.dp_size + replica]
            group = dist.new_group(ranks)
            if rank in ranks:
                self.embedding_group = group

    @property
    def is_first(self):
        return self.pp_rank == 0

    @property
    def is_last(self):
        return self.pp_rank == self.pp_size - 1

    def neighbour(self, offset):
        return (self.pp_rank + offset) * self.dp_size + self.dp_rank


class Stage(nn.Module):
    def __init__(self, topo, vocab, hidden, layers_per_stage):
        super().__init__()
        self.topo = topo
        if topo.is_first or topo.is_last:
            self.word_embeddings = nn.Parameter(torch.empty(vocab, hidden))
            nn.init.normal_(self.word_embeddings, std=0.02, generator=torch.Generator().manual_seed(1234))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))
            for _ in range(layers_per_stage)
        )
        if topo.is_last:
            self.final_norm = nn.LayerNorm(hidden)

    def forward(self, inputs, labels):
        x = F.embedding(inputs, self.word_embeddings) if self.topo.is_first else inputs
        for layer in self.layers:
            x = x + layer(x)
        if self.topo.is_last:
            logits = F.linear(self.final_norm(x), self.word_embeddings)
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return x


def forward_backward(stage, topo, micro_batches, act_shape, device):
    saved, losses = [], []
    for tokens, labels in micro_batches:
        if topo.is_first:
            inputs = tokens
        else:
            inputs = torch.empty(act_shape, device=device)
            dist.recv(inputs, src=topo.neighbour(-1))
            inputs.requires_grad_(True)
        outputs = stage(inputs, labels)
        if topo.is_last:
            outputs = outputs / len(micro_batches)
            losses.append(outputs.detach())
        else:
            dist.send(outputs.detach(), dst=topo.neighbour(1))
        saved.append((inputs, outputs))
    for inputs, outputs in saved:
        if topo.is_last:
            outputs.backward()
        else:
            grad = torch.empty(act_shape, device=device)
            dist.recv(grad, src=topo.neighbour(1))
            outputs.backward(grad)
        if not topo.is_first:
            dist.send(inputs.grad, dst=topo.neighbour(-1))
    return torch.stack(losses).sum() if losses else None


def allreduce_embedding_grads(stage, topo):
    """The first and the last stage hold a copy of the same matrix."""
    if topo.is_first or topo.is_last:
        dist.all_reduce(stage.word_embeddings.grad, group=topo.embedding_group)


def finalize_model_grads(stage, topo):
    for param in stage.parameters():
        param.grad.div_(topo.dp_size)
        dist.all_reduce(param.grad, group=topo.dp_group)
    allreduce_embedding_grads(stage, topo)


def main(pp_size=2, vocab=256, hidden=32, seq=16, micro_batch=2, num_micro=4, steps=10):
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    topo = PipelineTopology(pp_size)
    # replicas of one stage start from the same weights
    torch.manual_seed(100 + topo.pp_rank)
    stage = Stage(topo, vocab, hidden, layers_per_stage=2).to(device)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(7 + topo.dp_rank)
    for step in range(steps):
        batches = torch.randint(vocab, (num_micro, micro_batch, seq + 1), generator=generator).to(device)
        micro_batches = [(b[:, :-1], b[:, 1:]) for b in batches]
        optimizer.zero_grad(set_to_none=True)
        loss = forward_backward(stage, topo, micro_batches, (micro_batch, seq, hidden), device)
        finalize_model_grads(stage, topo)
        optimizer.step()
        if topo.is_last:
            dist.all_reduce(loss, group=topo.dp_group)
            if topo.dp_rank == 0:
                print(f"step {step} loss {loss.item() / topo.dp_size:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
