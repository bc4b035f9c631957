"""MoE router with the global-batch load balancing loss (https://arxiv.org/abs/2501.11873)."""
import os

import torch
import torch.distributed as dist
import torch.distributed.nn as dist_nn
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class AuxLossAutoScaler(torch.autograd.Function):
    """Attaches the auxiliary loss to an activation so that it joins the backward pass."""

    @staticmethod
    def forward(ctx, output, aux_loss):
        ctx.save_for_backward(aux_loss)
        return output.view_as(output)

    @staticmethod
    def backward(ctx, grad_output):
        (aux_loss,) = ctx.saved_tensors
        return grad_output, torch.ones_like(aux_loss)


class TopKRouter(nn.Module):
    def __init__(self, hidden, num_experts, topk, aux_loss_coeff, dp_group):
        super().__init__()
        self.num_experts, self.topk = num_experts, topk
        self.aux_loss_coeff = aux_loss_coeff
        self.dp_group = dp_group
        self.weight = nn.Parameter(torch.randn(num_experts, hidden) * 0.02)

    def global_load_balancing_loss(self, probs, indices):
        num_tokens = probs.size(0)
        routing_count = torch.bincount(indices.flatten(), minlength=self.num_experts).to(probs.dtype)
        # expert usage is measured over the global batch
        dist.all_reduce(routing_count, group=self.dp_group)
        global_tokens = num_tokens * dist.get_world_size(self.dp_group)
        fraction = routing_count / (global_tokens * self.topk)
        mean_prob = probs.mean(dim=0)
        return self.aux_loss_coeff * self.num_experts * torch.sum(fraction * mean_prob)

    def forward(self, hidden):
        logits = F.linear(hidden.float(), self.weight.float())
        probs = logits.softmax(dim=-1)
        scores, indices = probs.topk(self.topk, dim=-1)
        aux_loss = self.global_load_balancing_loss(probs, indices)
        scores = AuxLossAutoScaler.apply(scores, aux_loss)
        return scores, indices, aux_loss.detach()


class MoELayer(nn.Module):
    def __init__(self, hidden, ffn, num_experts, topk, aux_loss_coeff, dp_group):
        super().__init__()
        self.router = TopKRouter(hidden, num_experts, topk, aux_loss_coeff, dp_group)
        self.w1 = nn.Parameter(torch.randn(num_experts, ffn, hidden) * 0.02)
        self.w2 = nn.Parameter(torch.randn(num_experts, hidden, ffn) * 0.02)

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        scores, indices, aux_loss = self.router(flat)
        out = torch.zeros_like(flat)
        for expert in range(self.router.num_experts):
            rows, slots = (indices == expert).nonzero(as_tuple=True)
            hidden = F.silu(flat[rows] @ self.w1[expert].t()) @ self.w2[expert].t()
            out = out.index_add(0, rows, hidden * scores[rows, slots].unsqueeze(-1).to(hidden.dtype))
        return out.view_as(x), aux_loss


class MoELanguageModel(nn.Module):
    def __init__(self, vocab, hidden, num_layers, dp_group):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(num_layers))
        self.layers = nn.ModuleList(
            MoELayer(hidden, 2 * hidden, num_experts=8, topk=2, aux_loss_coeff=1e-2, dp_group=dp_group)
            for _ in range(num_layers)
        )
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        aux_total = x.new_zeros(())
        for norm, layer in zip(self.norms, self.layers):
            out, aux_loss = layer(norm(x))
            x = x + out
            aux_total = aux_total + aux_loss
        return self.head(x), aux_total


def reduced_mean(value, group):
    values = torch.cat(dist_nn.all_gather(value.detach().reshape(1), group=group))
    return values.mean().item()


def main(vocab=512, hidden=64, num_layers=2, steps=10, seed=3):
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    dp_group = dist.group.WORLD

    torch.manual_seed(seed)
    model = DDP(MoELanguageModel(vocab, hidden, num_layers, dp_group).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed + dist.get_rank())
    for step in range(steps):
        batch = torch.randint(vocab, (4, 65), generator=generator).to(device)
        logits, aux_loss = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        lm_value, aux_value = reduced_mean(loss, dp_group), reduced_mean(aux_loss, dp_group)
        if dist.get_rank() == 0:
            print(f"step {step} lm loss {lm_value:.4f} balance {aux_value:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
