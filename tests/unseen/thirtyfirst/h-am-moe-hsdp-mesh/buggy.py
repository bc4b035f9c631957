"""FSDP2 / HSDP training of a small decoder, following the usual parallelize_fn layout."""
import argparse
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class ModelArgs:
    vocab_size: int = 1024
    dim: int = 256
    n_layers: int = 4
    n_heads: int = 8
    max_seq_len: int = 128


class TransformerBlock(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.n_heads = args.n_heads
        self.attention_norm = nn.RMSNorm(args.dim)
        self.wqkv = nn.Linear(args.dim, 3 * args.dim, bias=False)
        self.wo = nn.Linear(args.dim, args.dim, bias=False)
        self.ffn_norm = nn.RMSNorm(args.dim)
        self.w1 = nn.Linear(args.dim, 4 * args.dim, bias=False)
        self.w2 = nn.Linear(4 * args.dim, args.dim, bias=False)

    def forward(self, x):
        b, s, d = x.shape
        qkv = self.wqkv(self.attention_norm(x)).view(b, s, 3, self.n_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attn = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(attn.transpose(1, 2).reshape(b, s, d))
        return x + self.w2(F.silu(self.w1(self.ffn_norm(x))))


class Transformer(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.tok_embeddings = nn.Embedding(args.vocab_size, args.dim)
        self.pos_embeddings = nn.Embedding(args.max_seq_len, args.dim)
        self.layers = nn.ModuleList(TransformerBlock(args) for _ in range(args.n_layers))
        self.norm = nn.RMSNorm(args.dim)
        self.output = nn.Linear(args.dim, args.vocab_size, bias=False)

    def forward(self, tokens):
        positions = torch.arange(tokens.size(1), device=tokens.device)
        x = self.tok_embeddings(tokens) + self.pos_embeddings(positions)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


class RandomTokens(Dataset):
    def __init__(self, size, args: ModelArgs):
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(args.vocab_size, (size, args.max_seq_len + 1), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


def get_fsdp_dp_mesh(world_mesh: DeviceMesh) -> DeviceMesh:
    return world_mesh["dp_shard"]  # BUG


def parallelize_model(model: Transformer, world_mesh: DeviceMesh, bf16: bool) -> Transformer:
    policy = MixedPrecisionPolicy()
    if bf16:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fsdp_mesh = get_fsdp_dp_mesh(world_mesh)
    for layer in model.layers:
        fully_shard(layer, mesh=fsdp_mesh, mp_policy=policy)
    fully_shard(model, mesh=fsdp_mesh, mp_policy=policy)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dp-replicate", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--max-norm", type=float, default=1.0)
    cli = parser.parse_args()

    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world, rank = dist.get_world_size(), dist.get_rank()
    world_mesh = init_device_mesh(
        device_type, (cli.dp_replicate, world // cli.dp_replicate), mesh_dim_names=("dp_replicate", "dp_shard")
    )

    torch.manual_seed(42)
    args = ModelArgs()
    model = parallelize_model(Transformer(args).to(device_type), world_mesh, bf16=device_type == "cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    dataset = RandomTokens(256, args)
    # replicate and shard ranks all read different samples
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, shuffle=True, drop_last=True)
    loader = DataLoader(dataset, batch_size=cli.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(cli.epochs):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            batch = batch.to(device_type)
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), cli.max_norm)
            optimizer.step()
            reported = loss.detach().clone()
            dist.all_reduce(reported)
            if rank == 0:
                print(f"epoch {epoch} step {step} loss {reported.item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
