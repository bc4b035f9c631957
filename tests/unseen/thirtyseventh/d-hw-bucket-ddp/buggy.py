# thread: none (from memory of a course assignment on data parallelism)
"""Data-parallel wrapper that exchanges gradients in buckets during the backward pass."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class BucketedDDP(nn.Module):
    def __init__(self, module, bucket_mb=25.0):
        super().__init__()
        self.module = module
        self.world = dist.get_world_size()
        for tensor in list(module.parameters()) + list(module.buffers()):
            dist.broadcast(tensor.data, src=0)
        self.limit = int(bucket_mb * 1024 * 1024)
        self.open, self.open_bytes = [], 0
        self.inflight = []
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self.on_gradient)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def on_gradient(self, p):
        """Every parameter of the module takes part in each backward pass."""
        self.open.append(p)
        self.open_bytes += p.grad.numel() * p.grad.element_size()
        if self.open_bytes >= self.limit:
            self.launch()

    def launch(self):
        params, self.open, self.open_bytes = self.open, [], 0
        flat = torch.cat([p.grad.reshape(-1) for p in params])
        flat.div_(self.world)
        work = dist.all_reduce(flat, async_op=True)
        self.inflight.append((work, flat, params))

    def finish_gradient_synchronization(self):
        self.open, self.open_bytes = [], 0  # BUG
        for work, flat, params in self.inflight:
            work.wait()
            offset = 0
            for p in params:
                p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
                offset += p.numel()
        self.inflight.clear()


class LanguageModel(nn.Module):
    def __init__(self, vocab, dim, layers, heads):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        return self.head(self.blocks(self.embed(ids), mask=mask, is_causal=True))


def train(rank, world, cfg, data):
    dist.init_process_group("nccl", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    torch.manual_seed(cfg.seed + rank)
    model = BucketedDDP(
        LanguageModel(cfg.vocab, cfg.dim, cfg.layers, cfg.heads).cuda(), cfg.bucket_mb
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    share = cfg.batch // world
    for step in range(cfg.steps):
        batch = data.batch(step, cfg.batch)[rank * share : (rank + 1) * share].cuda()
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        model.finish_gradient_synchronization()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
