"""Generalised knowledge distillation with gradient accumulation."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def generalized_jsd(student_logits, teacher_logits, beta=0.5, temperature=1.0):
    """Per-token divergence."""
    s = F.log_softmax(student_logits / temperature, dim=-1)
    t = F.log_softmax(teacher_logits / temperature, dim=-1)
    mix = torch.logsumexp(
        torch.stack([s + torch.log(torch.tensor(1 - beta)), t + torch.log(torch.tensor(beta))]), dim=0
    )
    kl_t = F.kl_div(mix, t, reduction="none", log_target=True).sum(-1)
    kl_s = F.kl_div(mix, s, reduction="none", log_target=True).sum(-1)
    return beta * kl_t + (1 - beta) * kl_s


class GKDTrainer:
    def __init__(self, student, teacher, optimizer, device, grad_acc_steps):
        self.student = DistributedDataParallel(student.to(device), device_ids=[device])
        self.teacher = teacher.to(device).eval()
        self.optimizer, self.grad_acc_steps = optimizer, grad_acc_steps

    def compute_loss(self, inputs, num_tokens):
        labels = inputs["labels"][:, 1:]
        student = self.student(inputs["input_ids"]).logits[:, :-1]
        with torch.no_grad():
            teacher = self.teacher(inputs["input_ids"]).logits[:, :-1]
        mask = labels != -100
        return generalized_jsd(student[mask], teacher[mask]).sum() / num_tokens

    def train_window(self, window):
        counts = [(b["labels"][:, 1:] != -100).sum() for b in window]
        for i, inputs in enumerate(window):
            self.student.require_backward_grad_sync = i == len(window) - 1
            loss = self.compute_loss(inputs, counts[i]) / self.grad_acc_steps  # BUG
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
