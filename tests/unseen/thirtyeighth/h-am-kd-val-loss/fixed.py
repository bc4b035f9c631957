"""Validation of the knowledge-distillation recipe."""
# thread: NVIDIA-NeMo/Automodel#2204
import torch
import torch.distributed as dist
import torch.nn.functional as F


class KnowledgeDistillationRecipeForNextTokenPrediction:
    def __init__(self, model_parts, teacher_model, kd_loss_fn, kd_ratio, dp_cp_group, device):
        self.model_parts = model_parts
        self.teacher_model = teacher_model
        self.kd_loss_fn = kd_loss_fn
        self.kd_ratio = kd_ratio
        self.dp_cp_group = dp_cp_group
        self.device = device

    def _dp_allreduce(self, tensor, op=dist.ReduceOp.SUM):
        dist.all_reduce(tensor, op=op, group=self.dp_cp_group)
        return tensor

    def _forward_step(self, batch, num_label_tokens):
        """Loss per label token of this batch."""
        batch = {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}
        labels = batch.pop("labels")
        with torch.inference_mode():
            teacher_logits = self.teacher_model(**batch).logits.detach()
        student_logits = self.model_parts[0](**batch).logits
        ce_loss = F.cross_entropy(
            student_logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100, reduction="sum"
        ) / num_label_tokens
        kd_loss = self.kd_loss_fn(student_logits, teacher_logits, labels, num_label_tokens)
        return (1.0 - self.kd_ratio) * ce_loss + self.kd_ratio * kd_loss

    @torch.no_grad()
    def _run_validation_epoch(self, val_dataloader):
        for mp in self.model_parts:
            mp.eval()
        total_loss = 0.0
        total_num_label_tokens = 0
        for batch in val_dataloader:
            num_label_tokens = (batch["labels"] != -100).sum().item()
            if num_label_tokens == 0:
                continue
            local_loss = self._forward_step(batch, num_label_tokens)
            total_loss += local_loss.item() * num_label_tokens
            total_num_label_tokens += num_label_tokens

        total_loss = self._dp_allreduce(
            torch.tensor(total_loss, dtype=torch.float32, device=self.device)
        ).item()
        total_num_label_tokens = self._dp_allreduce(
            torch.tensor(total_num_label_tokens, dtype=torch.long, device=self.device)
        ).item()
        val_loss = total_loss / max(total_num_label_tokens, 1e-8)
        for mp in self.model_parts:
            mp.train()
        return {"val_loss": val_loss, "num_label_tokens": total_num_label_tokens}
