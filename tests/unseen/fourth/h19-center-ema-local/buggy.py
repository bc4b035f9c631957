"""Self-distillation: the centre of the teacher's outputs over all ranks (DINO style)."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class DINOLoss(nn.Module):
    def __init__(self, out_dim, student_temp=0.1, center_momentum=0.9):
        super().__init__()
        self.student_temp, self.center_momentum = student_temp, center_momentum
        self.register_buffer("center", torch.zeros(1, out_dim))

    def forward(self, student_output, teacher_output, teacher_temp):
        student_out = (student_output / self.student_temp).chunk(2)
        teacher_out = F.softmax((teacher_output - self.center) / teacher_temp, dim=-1).detach().chunk(2)
        total, n = 0, 0
        for iq, q in enumerate(teacher_out):
            for v, s in enumerate(student_out):
                if v == iq:
                    continue
                total += torch.sum(-q * F.log_softmax(s, dim=-1), dim=-1).mean()
                n += 1
        self.update_center(teacher_output)
        return total / n

    @torch.no_grad()
    def update_center(self, teacher_output):
        batch_center = torch.sum(teacher_output, dim=0, keepdim=True)
        dist.all_reduce(batch_center)
        batch_center = batch_center / len(teacher_output)  # BUG
        self.center = self.center * self.center_momentum + batch_center * (1 - self.center_momentum)


class Dino(nn.Module):
    def __init__(self, student, teacher, cfg):
        super().__init__()
        self.student = nn.parallel.DistributedDataParallel(student)
        self.teacher = teacher
        self.loss = DINOLoss(cfg.out_dim)

    def training_step(self, crops, temp):
        with torch.no_grad():
            target = self.teacher(crops)
        return self.loss(self.student(crops), target, temp)
