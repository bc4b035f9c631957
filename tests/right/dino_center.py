"""DINO: the centre of the teacher is a mean over all ranks, taken asynchronously and applied one step later."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class DINOLoss(torch.nn.Module):
    def __init__(self, dim, student_temp=0.1, momentum=0.9):
        super().__init__()
        self.student_temp, self.momentum = student_temp, momentum
        self.register_buffer("center", torch.zeros(1, dim))
        self.updated = True
        self.reduce_handle = None
        self.async_sum = None
        self.n = None

    @torch.no_grad()
    def teacher_probs(self, teacher, temp):
        self.apply_center_update()
        return F.softmax((teacher - self.center) / temp, dim=-1)

    def forward(self, student, targets):
        total = 0
        for s in student:
            logp = F.log_softmax(s / self.student_temp, dim=-1)
            for t in targets:
                total = total - (t * logp).sum(-1).mean()
        return total

    @torch.no_grad()
    def update_center(self, teacher):
        self.updated = False
        self.n = len(teacher)
        self.async_sum = torch.sum(teacher, dim=0, keepdim=True)
        if dist.is_initialized():
            self.reduce_handle = dist.all_reduce(self.async_sum, async_op=True)

    @torch.no_grad()
    def apply_center_update(self):
        if self.updated is False:
            world = dist.get_world_size() if dist.is_initialized() else 1
            if self.reduce_handle is not None:
                self.reduce_handle.wait()
            mean = self.async_sum / (self.n * world)
            self.center = self.center * self.momentum + mean * (1 - self.momentum)
            self.updated = True


@torch.no_grad()
def sinkhorn(teacher, temp, n_iterations=3):
    q = torch.exp(teacher.float() / temp).t()
    b = q.shape[1] * dist.get_world_size()
    k = q.shape[0]
    total = q.sum()
    dist.all_reduce(total)
    q /= total
    for _ in range(n_iterations):
        rows = q.sum(dim=1, keepdim=True)
        dist.all_reduce(rows)
        q /= rows
        q /= k
        q /= q.sum(dim=0, keepdim=True)
        q /= b
    q *= b
    return q.t()
