"""the engine's layer exchanges raw and runs in rollouts under inference_mode; the policy is trained by its own module."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


class EngineMoE(nn.Module):
    def __init__(self, experts, group):
        super().__init__()
        self.experts, self.group = experts, group

    def forward(self, x):
        inbox = torch.empty_like(x)
        dist.all_to_all_single(inbox, x, group=self.group)
        out = self.experts(inbox)
        back = torch.empty_like(out)
        dist.all_to_all_single(back, out, group=self.group)
        return back


class Engine:
    def __init__(self, embed, experts, head, group):
        self.embed, self.head = embed, head
        self.moe = EngineMoE(experts, group)

    @torch.inference_mode()
    def generate(self, ids, n):
        for _ in range(n):
            h = self.moe(self.embed(ids[:, -1]))
            ids = torch.cat([ids, self.head(h).argmax(-1, keepdim=True)], dim=1)
        return ids


def train(policy, engine, prompts, reward, optimizer):
    model = DistributedDataParallel(policy)
    for ids in prompts:
        ids = engine.generate(ids, 32).clone()
        advantage = reward(ids) - reward(ids).mean()
        logp = model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1).sum(-1)
        loss = -(advantage * logp).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
