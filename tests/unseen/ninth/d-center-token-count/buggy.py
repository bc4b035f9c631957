"""Masked patch distillation: centered teacher targets for a student, one center for all ranks."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class PatchDistillationLoss(nn.Module):
    def __init__(self, prototypes, student_temp=0.1, center_momentum=0.9):
        super().__init__()
        self.student_temp = student_temp
        self.center_momentum = center_momentum
        self.register_buffer("center", torch.zeros(1, prototypes))

    @torch.no_grad()
    def targets(self, teacher_tokens, temperature):
        return F.softmax((teacher_tokens - self.center) / temperature, dim=-1)

    @torch.no_grad()
    def update_center(self, teacher_tokens):
        total = teacher_tokens.float().sum(dim=0, keepdim=True)
        dist.all_reduce(total)
        count = len(teacher_tokens) * dist.get_world_size()  # BUG
        mean = total / count
        self.center.mul_(self.center_momentum).add_(mean, alpha=1 - self.center_momentum)

    def forward(self, student_tokens, targets, token_weight):
        log_probs = F.log_softmax(student_tokens / self.student_temp, dim=-1)
        per_token = -(targets * log_probs).sum(dim=-1)
        return (per_token * token_weight).sum()


class SelfDistillation(nn.Module):
    def __init__(self, student, teacher, prototypes, momentum=0.994):
        super().__init__()
        self.student = student
        self.teacher = teacher
        self.teacher.load_state_dict(student.state_dict())
        self.teacher.requires_grad_(False)
        self.momentum = momentum
        self.criterion = PatchDistillationLoss(prototypes)

    def forward(self, images, mask, teacher_temp):
        """mask: bool [batch, patches], a different number of True in every image."""
        with torch.no_grad():
            teacher_tokens = self.teacher(images, None)[mask]
            targets = self.criterion.targets(teacher_tokens, teacher_temp)
        student_tokens = self.student(images, mask)[mask]
        per_image = mask.sum(dim=1, keepdim=True).clamp(min=1)
        weight = (1.0 / per_image / len(images)).expand_as(mask)[mask]
        loss = self.criterion(student_tokens, targets, weight)
        self.criterion.update_center(teacher_tokens)
        return loss

    @torch.no_grad()
    def update_teacher(self):
        for ours, theirs in zip(self.teacher.parameters(), self.student.parameters()):
            ours.mul_(self.momentum).add_(theirs, alpha=1 - self.momentum)


def teacher_temperature(step, warmup_steps, start=0.04, end=0.07):
    return start + (end - start) * min(1.0, step / warmup_steps)


def pretrain(student, teacher, loader, sampler, device, epochs, lr=2e-4):
    model = SelfDistillation(student, teacher, prototypes=65536).to(device)
    model = DDP(model, device_ids=[device.index], broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.module.student.parameters(), lr=lr)
    step = 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, mask in loader:
            optimizer.zero_grad()
            loss = model(images.to(device), mask.to(device), teacher_temperature(step, 10_000))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.module.student.parameters(), 3.0)
            optimizer.step()
            model.module.update_teacher()
            step += 1
