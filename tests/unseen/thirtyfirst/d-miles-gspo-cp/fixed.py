"""GSPO (sequence level policy optimization) with context parallel log-probabilities."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


class AllReduceSum(torch.autograd.Function):
    """Forward sum; the reduced value feeds the same computation on every rank."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=dim)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        size, rank = dist.get_world_size(ctx.group), dist.get_rank(ctx.group)
        return grad.chunk(size, dim=ctx.dim)[rank].contiguous(), None, None


class Policy(nn.Module):
    def __init__(self, vocab, max_len, dim, heads, cp_group):
        super().__init__()
        self.heads, self.cp_group = heads, cp_group
        self.embed, self.pos = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens, positions):
        x = self.embed(tokens) + self.pos(positions)
        b, s, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        k, v = GatherSequence.apply(k, 2, self.cp_group), GatherSequence.apply(v, 2, self.cp_group)
        mask = positions[:, None] >= torch.arange(k.size(2), device=x.device)[None, :]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(out.transpose(1, 2).reshape(b, s, d))
        return self.head(self.norm2(x))


def token_log_probs(logits, targets):
    return logits.float().log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def sequence_log_ratio(log_probs, old_log_probs, loss_mask, cp_group):
    """Length normalized log ratio of whole responses from their local parts."""
    diff_sum = ((log_probs - old_log_probs) * loss_mask).sum(dim=-1)
    token_count = loss_mask.sum(dim=-1)
    diff_sum = AllReduceSum.apply(diff_sum, cp_group)
    token_count = AllReduceSum.apply(token_count, cp_group)
    return diff_sum / token_count.clamp(min=1)


def gspo_loss(log_probs, batch, cp_group, clip=0.2):
    log_ratio = sequence_log_ratio(log_probs, batch["old_log_probs"], batch["loss_mask"], cp_group)
    ratio = log_ratio.exp()
    advantages = batch["advantages"]
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    return -surrogate.mean()


def make_rollout(generator, batch_size, seq_len, vocab):
    tokens = torch.randint(vocab, (batch_size, seq_len + 1), generator=generator)
    prompt = torch.randint(seq_len // 4, seq_len // 2, (batch_size, 1), generator=generator)
    response = torch.randint(1, seq_len // 2, (batch_size, 1), generator=generator)
    index = torch.arange(seq_len).unsqueeze(0)
    return {
        "tokens": tokens[:, :-1],
        "targets": tokens[:, 1:],
        "loss_mask": ((index >= prompt) & (index < prompt + response)).float(),
        "old_log_probs": -5.5 + 0.1 * torch.randn(batch_size, seq_len, generator=generator),
        "advantages": torch.randn(batch_size, generator=generator),
    }


def shard_sequence(rollout, cp_group, device):
    size, rank = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    local = {k: v.chunk(size, dim=1)[rank] if v.dim() == 2 else v for k, v in rollout.items()}
    local["positions"] = torch.arange(rollout["tokens"].size(1)).chunk(size)[rank]
    return {k: v.contiguous().to(device) for k, v in local.items()}


def reduce_gradients(model, mesh):
    """Each cp rank holds the contribution of its tokens, dp ranks hold different rollouts."""
    for param in model.parameters():
        dist.all_reduce(param.grad, group=mesh.get_group("cp"))
        dist.all_reduce(param.grad, group=mesh.get_group("dp"))
        param.grad.div_(mesh["dp"].size())


def main(cp_size=2, vocab=256, seq_len=64, steps=5, seed=0):
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(device_type, (dist.get_world_size() // cp_size, cp_size), mesh_dim_names=("dp", "cp"))
    cp_group = mesh.get_group("cp")
    torch.manual_seed(seed)
    model = Policy(vocab, seq_len, dim=32, heads=4, cp_group=cp_group).to(device_type)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(seed + 1 + mesh.get_local_rank("dp"))
    for step in range(steps):
        batch = shard_sequence(make_rollout(generator, 4, seq_len, vocab), cp_group, device_type)
        log_probs = token_log_probs(model(batch["tokens"], batch["positions"]), batch["targets"])
        loss = gspo_loss(log_probs, batch, cp_group)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        reduce_gradients(model, mesh)
        optimizer.step()
        reported = loss.detach().clone()
        dist.all_reduce(reported, group=mesh.get_group("dp"))
        if dist.get_rank() == 0:
            print(f"step {step} loss {reported.item() / mesh['dp'].size():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
