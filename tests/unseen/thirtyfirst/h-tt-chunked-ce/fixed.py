"""Chunked cross entropy over a tensor parallel lm_head.

The decoder output is cut along the sequence, each chunk runs lm_head + loss +
backward on its own, and the accumulated hidden gradient is sent through the
decoder in one go.
"""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import loss_parallel


class GradAccumulator:
    """Collects the chunk gradients of one activation into a full-size buffer."""

    def __init__(self, activation: DTensor, seq_dim: int):
        self._mesh = activation.device_mesh
        self._buffer = torch.zeros_like(activation.to_local())
        self._seq_dim = seq_dim
        self._offset = 0
        self._placements = None

    def add(self, chunk_grad: DTensor) -> None:
        if self._placements is None:
            self._placements = chunk_grad.placements
        assert chunk_grad.placements == self._placements
        local = chunk_grad.to_local()
        length = local.size(self._seq_dim)
        self._buffer.narrow(self._seq_dim, self._offset, length).copy_(local)
        self._offset += length

    def result(self) -> DTensor:
        return DTensor.from_local(self._buffer, self._mesh, self._placements, run_check=False)


class ChunkedCELoss:
    def __init__(self, num_chunks: int, seq_dim: int = 1):
        self.num_chunks = num_chunks
        self.seq_dim = seq_dim

    def backward(self, lm_head, hidden: DTensor, labels: DTensor, num_tokens: int) -> float:
        hidden_leaf = hidden.detach()
        grads = GradAccumulator(hidden_leaf, self.seq_dim)
        total = 0.0
        chunks = hidden_leaf.chunk(self.num_chunks, dim=self.seq_dim)
        for chunk, label in zip(chunks, labels.chunk(self.num_chunks, dim=self.seq_dim)):
            chunk = chunk.detach().requires_grad_(True)
            with loss_parallel():
                logits = lm_head(chunk)
                loss = F.cross_entropy(logits.flatten(0, 1).float(), label.flatten(), reduction="sum")
                loss = loss / num_tokens
                loss.backward()
            grads.add(chunk.grad)
            total += loss.detach().full_tensor().item()
        hidden.backward(gradient=grads.result())
        return total


class Decoder(nn.Module):
    def __init__(self, vocab_size: int, dim: int):
        super().__init__()
        self.tok_embeddings = nn.Parameter(torch.randn(vocab_size, dim) * 0.02)
        self.w1 = nn.Parameter(torch.randn(4 * dim, dim) * 0.02)
        self.w2 = nn.Parameter(torch.randn(dim, 4 * dim) * 0.02)

    def forward(self, tokens: DTensor) -> DTensor:
        hidden = F.embedding(tokens, self.tok_embeddings)
        update = F.linear(F.gelu(F.linear(hidden, self.w1)), self.w2)
        return hidden + update.redistribute(placements=[Replicate()])


class LMHead(nn.Module):
    def __init__(self, vocab_size: int, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, dim) * 0.02)

    def forward(self, hidden: DTensor) -> DTensor:
        return F.linear(hidden, self.weight)


def shard_(module: nn.Module, mesh, plan) -> None:
    for name, param in list(module.named_parameters(recurse=False)):
        sharded = distribute_tensor(param.data, mesh, [plan.get(name, Replicate())])
        module.register_parameter(name, nn.Parameter(sharded))


def main(vocab_size=512, dim=64, seq_len=128, batch_size=2, steps=10):
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(device_type, (dist.get_world_size(),), mesh_dim_names=("tp",))

    torch.manual_seed(0)
    decoder, lm_head = Decoder(vocab_size, dim), LMHead(vocab_size, dim)
    decoder.to(device_type)
    lm_head.to(device_type)
    shard_(decoder, mesh, {"w1": Shard(0), "w2": Shard(1)})
    shard_(lm_head, mesh, {"weight": Shard(0)})
    params = [*decoder.parameters(), *lm_head.parameters()]
    optimizer = torch.optim.AdamW(params, lr=1e-3)
    loss_fn = ChunkedCELoss(num_chunks=4)

    generator = torch.Generator().manual_seed(5)
    for step in range(steps):
        batch = torch.randint(vocab_size, (batch_size, seq_len + 1), generator=generator).to(device_type)
        tokens = distribute_tensor(batch[:, :-1].contiguous(), mesh, [Replicate()])
        labels = distribute_tensor(batch[:, 1:].contiguous(), mesh, [Replicate()])
        optimizer.zero_grad()
        hidden = decoder(tokens)
        loss = loss_fn.backward(lm_head, hidden, labels, num_tokens=batch_size * seq_len)
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
