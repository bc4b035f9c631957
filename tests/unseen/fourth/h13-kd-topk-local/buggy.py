"""Distillation against a teacher whose vocabulary is sharded, with all-gathered logits."""
import torch
import torch.nn.functional as F
import torch.distributed as dist


class KDLoss:
    def __init__(self, cfg, tp_group=None):
        self.tp_group = tp_group
        self.temperature = cfg.get("temperature", 1.0)
        self.ignore_index = cfg.get("ignore_index", -100)

    def _tp_enabled(self):
        return self.tp_group is not None and dist.get_world_size(self.tp_group) > 1

    def _gather_vocab(self, logits):
        parts = [torch.empty_like(logits) for _ in range(dist.get_world_size(self.tp_group))]
        dist.all_gather(parts, logits.contiguous(), group=self.tp_group)
        return torch.cat(parts, dim=-1)  # BUG

    def __call__(self, student_logits, teacher_logits, labels, num_batch_labels=None):
        valid = labels.view(-1) != self.ignore_index
        if self._tp_enabled():
            student_logits = self._gather_vocab(student_logits)
            teacher_logits = self._gather_vocab(teacher_logits)
        t = teacher_logits.view(-1, teacher_logits.size(-1))[valid].float() / self.temperature
        s = student_logits.view(-1, student_logits.size(-1))[valid].float() / self.temperature
        loss = -(F.softmax(t, dim=-1) * F.log_softmax(s, dim=-1)).sum(-1)
        if num_batch_labels is not None:
            return loss.sum() / num_batch_labels
        return loss.mean()


class DistillRecipe:
    def __init__(self, cfg, student, teacher, tp_group):
        self.student, self.teacher = student, teacher.eval()
        self.kd_loss = KDLoss(cfg, tp_group)
        self.kd_ratio = cfg.kd_ratio

    def forward_backward(self, batch):
        labels = batch.pop("labels")
        with torch.inference_mode():
            teacher_logits = self.teacher(**batch).logits.detach()
        loss = self.kd_loss(self.student(**batch).logits, teacher_logits, labels)
        loss.backward()
        return loss.detach()
