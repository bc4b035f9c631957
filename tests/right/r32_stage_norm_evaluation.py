"""The pipeline is only evaluated; what is trained is a model that every rank has whole."""

import torch
import torch.distributed as dist


class Judge:
    def __init__(self, pp_schedule):
        self.pp_schedule = pp_schedule

    @torch.no_grad()
    def score(self, x):
        return self.pp_schedule.step(x)


class Trainer:
    def __init__(self, model, optimizer, judge, max_norm):
        self.model, self.optimizer, self.judge, self.max_norm = model, optimizer, judge, max_norm

    def train_step(self, x):
        (self.model(x) * self.judge.score(x)).mean().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()
