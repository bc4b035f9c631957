# Reduces lightly's DINOLoss: the centre is updated from the teacher outputs of the own rank, so every rank subtracts
# a different centre.
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class DINOLoss(nn.Module):
    def __init__(self, out_dim, student_temp=0.1, teacher_temp=0.04, center_momentum=0.9):
        super().__init__()
        self.student_temp, self.teacher_temp = student_temp, teacher_temp
        self.center_momentum = center_momentum
        self.register_buffer("center", torch.zeros(1, out_dim))

    def forward(self, student_out, teacher_out):
        target = F.softmax((teacher_out - self.center) / self.teacher_temp, dim=-1).detach()
        loss = -(target * F.log_softmax(student_out / self.student_temp, dim=-1)).sum(dim=-1).mean()
        self.update_center(teacher_out)
        return loss

    @torch.no_grad()
    def update_center(self, teacher_out):
        batch_center = teacher_out.mean(dim=0, keepdim=True)
        self.center = self.center * self.center_momentum + batch_center * (1 - self.center_momentum)  # BUG


def train(student, teacher, loader, device, out_dim, momentum=0.996):
    student = DDP(student.to(device), device_ids=[device.index])
    teacher = teacher.to(device).requires_grad_(False)
    teacher.load_state_dict(student.module.state_dict())
    criterion = DINOLoss(out_dim).to(device)
    optimizer = torch.optim.AdamW(student.parameters(), lr=5e-4)
    for global_view, local_view in loader:
        with torch.no_grad():
            teacher_out = teacher(global_view.to(device))
        loss = criterion(student(local_view.to(device)), teacher_out)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for s, t in zip(student.module.parameters(), teacher.parameters()):
                t.mul_(momentum).add_(s.detach(), alpha=1 - momentum)
