"""One mean over dp and cp, and one factor of cp on the gradients: sum over cp, mean over dp."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh


class CPTrainer:
    def __init__(self, model, dp, cp):
        self.mesh = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))
        self.all = self.mesh["dp", "cp"]._flatten("dp_cp").get_group()
        self.cp_group = self.mesh.get_group("cp")
        self.cp = self.mesh["cp"].size()
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())

    def loss(self, tokens, labels):
        # tokens and labels are this rank's part of the sequence
        logits = self.model(tokens)
        nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        n = (labels != -100).sum()
        dist.all_reduce(n, group=self.cp_group)
        return nll / n.clamp(min=1)

    def reduce(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.all)
        torch._foreach_mul_([p.grad for p in self.model.parameters()], float(self.cp))

    def step(self, tokens, labels):
        loss = self.loss(tokens, labels)
        loss.backward()
        self.reduce()
        self.optimizer.step()
        self.optimizer.zero_grad()
        shown = loss.detach().clone()
        dist.all_reduce(shown, group=self.cp_group)
        dist.all_reduce(shown, op=dist.ReduceOp.AVG, group=self.mesh.get_group("dp"))
        return shown.item()
