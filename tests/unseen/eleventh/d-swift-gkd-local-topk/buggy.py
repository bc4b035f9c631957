"""Top-k distillation from a vocabulary-parallel teacher.

Reduced from modelscope/ms-swift e98904c254 ([bugfix] fix megatron gkd tp top-k, #8319).
"""
import torch
import torch.nn.functional as F
from megatron.core import mpu
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region

# spmd: mesh dense = dp, cp, tp


class MegatronGKDTrainer:
    # spmd: teacher_logits: {tp: S(-1)} -> ({tp: I}, {tp: R})
    def teacher_topk(self, teacher_logits, k):
        """Largest logits of the (detached) teacher and their ids in the full vocabulary."""
        return torch.topk(teacher_logits, k=k, dim=-1)  # BUG: largest of this vocabulary shard, with local ids

    # spmd: logits: {tp: S(-1)}, indices: {tp: R}
    def gather_topk(self, logits, indices):
        vocab_start = mpu.get_tensor_model_parallel_rank() * logits.shape[-1]
        local = indices - vocab_start
        outside = (local < 0) | (local >= logits.shape[-1])
        picked = torch.gather(logits, -1, local.masked_fill(outside, 0)).masked_fill(outside, 0.0)
        return reduce_from_tensor_model_parallel_region(picked)

    def loss(self, student_logits, teacher_logits, k):
        topk_logits, topk_indices = self.teacher_topk(teacher_logits, k)
        student = F.log_softmax(self.gather_topk(student_logits, topk_indices), dim=-1)
        teacher = F.log_softmax(topk_logits, dim=-1)
        return F.kl_div(student, teacher, reduction="batchmean", log_target=True)
