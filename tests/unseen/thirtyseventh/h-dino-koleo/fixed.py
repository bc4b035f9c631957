# thread: none (from memory of dinov3)
"""Self-distillation step with a nearest-neighbour spreading term."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as distnn
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class KoLeoLoss(nn.Module):
    """Pushes each class token away from its nearest neighbour in the global batch."""

    def __init__(self, eps=1e-8):
        super().__init__()
        self.eps = eps

    @torch.no_grad()
    def nearest(self, x, everything):
        dots = x @ everything.t()
        rows = torch.arange(x.shape[0], device=x.device)
        dots[rows, rows + dist.get_rank() * x.shape[0]] = -1.0
        return dots.argmax(dim=1)

    def forward(self, x):
        with torch.autocast("cuda", enabled=False):
            x = F.normalize(x.float(), dim=-1, eps=self.eps)
            everything = torch.cat(distnn.all_gather(x), dim=0)
            index = self.nearest(x.detach(), everything.detach())
            distances = F.pairwise_distance(x, everything[index], eps=self.eps)
            return -torch.log(distances + self.eps).mean()


class DINOLoss(nn.Module):
    def __init__(self, dim, temperature=0.1, momentum=0.9):
        super().__init__()
        self.temperature, self.momentum = temperature, momentum
        self.register_buffer("center", torch.zeros(1, dim))

    @torch.no_grad()
    def targets(self, teacher_logits, teacher_temp):
        probs = F.softmax((teacher_logits - self.center) / teacher_temp, dim=-1)
        mean = teacher_logits.mean(dim=0, keepdim=True)
        dist.all_reduce(mean)
        self.center.lerp_(mean / dist.get_world_size(), 1 - self.momentum)
        return probs

    def forward(self, student_logits, targets):
        log_probs = F.log_softmax(student_logits / self.temperature, dim=-1)
        return -(targets * log_probs).sum(dim=-1).mean()


class SSLTrainer:
    def __init__(self, student, teacher, dim, cfg):
        self.student = DistributedDataParallel(
            student.cuda(), device_ids=[torch.cuda.current_device()]
        )
        self.teacher = teacher.cuda().requires_grad_(False)
        self.teacher.load_state_dict(self.student.module.state_dict())
        self.dino, self.koleo = DINOLoss(dim).cuda(), KoLeoLoss()
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=cfg.lr)
        self.cfg = cfg

    def step(self, view_a, view_b):
        """Every rank gets equally many images."""
        with torch.no_grad():
            targets = self.dino.targets(self.teacher(view_a)[1], self.cfg.teacher_temp)
        tokens, logits = self.student(view_b)
        loss = self.dino(logits, targets) + self.cfg.koleo_weight * self.koleo(tokens)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for t, s in zip(self.teacher.parameters(), self.student.module.parameters()):
                t.lerp_(s, 1 - self.cfg.momentum)
        return loss.detach()
