"""ZeRO-2 style stage: gradients are reduced to shards after every micro-batch."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class ShardedStage:
    """Flat fp32 parameter of a module, one shard of weights / grads / optimizer state per rank."""

    def __init__(self, module: nn.Module, group, lr: float):
        self.group = group
        self.world_size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.params = list(module.parameters())
        numel = sum(p.numel() for p in self.params)
        self.shard_size = -(-numel // self.world_size)
        device = self.params[0].device

        self.weight_buffer = torch.zeros(self.shard_size * self.world_size, device=device)
        self.grad_buffer = torch.zeros_like(self.weight_buffer)
        offset = 0
        for param in self.params:
            view = self.weight_buffer[offset : offset + param.numel()].view_as(param)
            view.copy_(param.data)
            param.data = view
            offset += param.numel()

        begin = self.rank * self.shard_size
        self.weight_shard = nn.Parameter(self.weight_buffer[begin : begin + self.shard_size].clone())
        self.grad_shard = torch.zeros_like(self.weight_shard)
        self.optimizer = torch.optim.AdamW([self.weight_shard], lr=lr)

    def _collect_gradients(self):
        offset = 0
        for param in self.params:
            target = self.grad_buffer[offset : offset + param.numel()]
            if param.grad is None:
                target.zero_()
            else:
                target.copy_(param.grad.flatten())
            param.grad = None
            offset += param.numel()

    def reduce_gradients(self, accumulate: bool):
        """Average the micro-batch gradient over the group and flush it into the shard."""
        self._collect_gradients()
        reduced = torch.empty_like(self.grad_shard)
        dist.reduce_scatter_tensor(reduced, self.grad_buffer, group=self.group)
        reduced.div_(self.world_size)
        if accumulate:
            self.grad_shard.add_(reduced)
        else:
            self.grad_shard.copy_(reduced)

    def grad_norm(self):
        square = self.grad_shard.square().sum()
        dist.all_reduce(square, group=self.group)
        return square.sqrt()

    @torch.no_grad()
    def step(self, max_norm: float):
        norm = self.grad_norm()
        self.grad_shard.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
        self.weight_shard.grad = self.grad_shard
        self.optimizer.step()
        dist.all_gather_into_tensor(self.weight_buffer, self.weight_shard.detach(), group=self.group)
        return norm


class Model(nn.Module):
    def __init__(self, vocab, dim, n_layers):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
            for _ in range(n_layers)
        )
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def train_step(model, stage, micro_batches, max_norm):
    total = 0.0
    for index, batch in enumerate(micro_batches):
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()) / len(micro_batches)
        loss.backward()
        stage.reduce_gradients(accumulate=index > 0)
        total = total + loss.detach()
    norm = stage.step(max_norm)
    dist.all_reduce(total, group=stage.group)
    return total.item() / stage.world_size, norm.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    vocab = 256
    torch.manual_seed(0)
    model = Model(vocab, dim=32, n_layers=2).to(device)
    stage = ShardedStage(model, dist.group.WORLD, lr=args.lr)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    for step in range(args.steps):
        batches = torch.randint(vocab, (args.micro_batches, 4, 33), generator=generator).to(device)
        loss, norm = train_step(model, stage, list(batches), max_norm=1.0)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss:.4f} grad norm {norm:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
