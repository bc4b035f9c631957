"""Cross-tokenizer distillation: chunk KL next to token cross entropy."""
# Source: NVIDIA-NeMo/RL pull request 2745 (review thread; code from memory)
import torch
import torch.distributed as dist
import torch.nn.functional as F


def group_all_reduce_sum(value, group=None):
    value = value.detach().clone().float()
    dist.all_reduce(value, op=dist.ReduceOp.SUM, group=group)
    return value


class CrossTokenizerDistillationLoss:
    """Called on every rank of a (dp, tp) mesh; tensor-parallel peers see the same samples and full logits."""

    def __init__(self, device_mesh, kl_weight=1.0, temperature=1.0):
        self.dp_group = device_mesh.get_group("dp")
        self.kl_weight, self.temperature = kl_weight, temperature

    def _chunk_mean(self, probs, chunk_index, num_chunks):
        """Average next-token distributions inside each aligned chunk: [b, chunks, vocab]."""
        out = probs.new_zeros(probs.size(0), num_chunks, probs.size(-1))
        out.scatter_add_(1, chunk_index.unsqueeze(-1).expand_as(probs), probs)
        count = torch.zeros_like(out[..., :1])
        count.scatter_add_(1, chunk_index.unsqueeze(-1), torch.ones_like(probs[..., :1]))
        return out / count.clamp_min(1)

    def _compute_kl(self, student_logits, teacher_probs, align):
        student = self._chunk_mean(
            F.softmax(student_logits.float() / self.temperature, dim=-1), align["student_chunk"], align["chunks"]
        )
        student = student @ align["vocab_projection"]
        kl = (teacher_probs * (teacher_probs.clamp_min(1e-9).log() - student.clamp_min(1e-9).log())).sum(-1)
        valid = align["chunk_mask"] & align["sample_mask"].unsqueeze(-1)
        global_valid_chunks = group_all_reduce_sum(valid.sum(), self.dp_group)
        return (kl * valid).sum() / global_valid_chunks.clamp_min(1)

    def _compute_ce(self, student_logits, labels, token_mask):
        ce = F.cross_entropy(student_logits.float().flatten(0, 1), labels.flatten(), reduction="none")
        global_valid_toks = group_all_reduce_sum(token_mask.sum(), self.dp_group)
        return (ce.view_as(labels) * token_mask).sum() / global_valid_toks.clamp_min(1)

    def __call__(self, student_logits, teacher_probs, batch, align):
        ce = self._compute_ce(student_logits, batch["labels"], batch["token_mask"])
        kl = self._compute_kl(student_logits, teacher_probs, align)
        return ce + self.kl_weight * kl


def train_step(model, loss_fn, batch, teacher_probs, align, optimizer):
    loss = loss_fn(model(batch["input_ids"]), teacher_probs, batch, align)
    # FSDP averages over the data-parallel group
    (loss * dist.get_world_size(loss_fn.dp_group)).backward()
    optimizer.step()
    optimizer.zero_grad()
