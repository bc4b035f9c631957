"""FSDP2 set-up of a trainer (written from memory of PrimeIntellect-ai/prime-rl and similar trainers)."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Transformer(torch.nn.Module):
    def __init__(self, vocab_size, dim, layers):
        super().__init__()
        self.tok_embeddings = torch.nn.Embedding(vocab_size, dim)
        self.layers = torch.nn.ModuleList(layers)
        self.norm = torch.nn.RMSNorm(dim)
        self.output = torch.nn.Linear(dim, vocab_size, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


def setup_fsdp(model, world_size):
    mesh = init_device_mesh("cuda", (world_size,), mesh_dim_names=("dp_shard",))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer_id, block in enumerate(model.layers):
        fully_shard(
            block,
            mesh=mesh,
            mp_policy=policy,
            reshard_after_forward=layer_id < len(model.layers) - 1,
        )
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def train(model, loader, world_size, lr=1e-5):
    model = setup_fsdp(model, world_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for batch in loader:  # other samples on each rank
        logits = model(batch["input_ids"].cuda())
        labels = batch["labels"].cuda()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
