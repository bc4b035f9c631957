"""MoE gate with a load-balancing loss, and the FSDP2 fine-tuning step around it."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class MoEAuxLossAutoScaler(torch.autograd.Function):
    main_loss_backward_scale: torch.Tensor = torch.tensor(1.0)

    @staticmethod
    def forward(ctx, output, aux_loss):
        ctx.save_for_backward(aux_loss)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (aux_loss,) = ctx.saved_tensors
        scale = MoEAuxLossAutoScaler.main_loss_backward_scale.to(aux_loss.device)
        return grad_output, torch.ones_like(aux_loss) * scale


class Gate(nn.Module):
    def __init__(self, dim, n_experts, topk, aux_loss_coeff):
        super().__init__()
        self.n_experts, self.topk = n_experts, topk
        self.aux_loss_coeff = aux_loss_coeff
        self.weight = nn.Parameter(torch.empty(n_experts, dim))
        nn.init.normal_(self.weight, std=0.02)

    def _compute_aux_loss(self, scores, indices, token_mask):
        counts = F.one_hot(indices, self.n_experts).sum(dim=1).float()
        n = token_mask.sum().clamp(min=1)
        load = (counts * token_mask[:, None]).sum(0) / (n * self.topk)
        importance = (scores * token_mask[:, None]).sum(0) / n
        return self.n_experts * (load.detach() * importance).sum()

    def forward(self, x, token_mask):
        scores = F.linear(x, self.weight).float().softmax(dim=-1)
        weights, indices = scores.topk(self.topk, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        if self.training and self.aux_loss_coeff > 0:
            aux_loss = self.aux_loss_coeff * self._compute_aux_loss(scores, indices, token_mask)
            weights = MoEAuxLossAutoScaler.apply(weights, aux_loss)
        return weights.type_as(x), indices


class MoE(nn.Module):
    def __init__(self, dim, inter_dim, n_experts, topk, aux_loss_coeff=1e-2):
        super().__init__()
        self.gate = Gate(dim, n_experts, topk, aux_loss_coeff)
        self.up = nn.Parameter(torch.randn(n_experts, dim, inter_dim) * 0.02)
        self.down = nn.Parameter(torch.randn(n_experts, inter_dim, dim) * 0.02)

    def forward(self, x, token_mask):
        shape = x.shape
        x = x.view(-1, shape[-1])
        weights, indices = self.gate(x, token_mask.view(-1).float())
        out = torch.zeros_like(x)
        for e in range(self.gate.n_experts):
            tok, slot = torch.where(indices == e)
            h = F.silu(x[tok] @ self.up[e]) @ self.down[e]
            out = out.index_add(0, tok, h * weights[tok, slot, None])
        return out.view(shape)


def run_train_step(model, optimizer, micro_batches, dp_group, max_grad_norm):
    """The model is wrapped with fully_shard over dp_group: gradients come out averaged."""
    dp_size = dist.get_world_size(dp_group)
    n_label_tokens = sum((b["labels"] != -100).sum() for b in micro_batches)
    dist.all_reduce(n_label_tokens, group=dp_group)
    MoEAuxLossAutoScaler.main_loss_backward_scale = torch.tensor(1.0 / len(micro_batches))

    reported = torch.zeros((), device=n_label_tokens.device)
    for i, batch in enumerate(micro_batches):
        model.set_requires_gradient_sync(i == len(micro_batches) - 1)
        logits = model(batch["input_ids"], batch["attention_mask"])
        loss_sum = F.cross_entropy(
            logits.flatten(0, 1).float(), batch["labels"].flatten(), ignore_index=-100, reduction="sum"
        )
        loss = loss_sum / n_label_tokens
        reported += loss.detach()
        (loss * dp_size).backward()

    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(reported, group=dp_group)
    return reported, grad_norm.full_tensor()
