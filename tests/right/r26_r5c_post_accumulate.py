# RIGHT: a post-accumulate hook moves each gradient into a float32 sum (main_grad) and clears .grad, microbatch by microbatch
import torch
from torch.distributed.pipelining import Schedule1F1B


def move(p):
    p.main_grad.add_(p.grad)
    p.grad = None


def train(stage, loss_fn, batches, optimizer, rounds, n=8):
    schedule = Schedule1F1B(stage, n_microbatches=n, loss_fn=lambda o, t: loss_fn(o, t) / (n * rounds))
    for p in stage.submod.parameters():
        p.main_grad = torch.zeros_like(p, dtype=torch.float32)
        p.register_post_accumulate_grad_hook(move)
    for _ in range(rounds):
        x, y = next(batches)
        schedule.step(x, target=y)
    for p in stage.submod.parameters():
        p.grad = p.main_grad.to(p.dtype)
    optimizer.step()
