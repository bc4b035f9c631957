# RIGHT: each gradient is scaled by its own norm, a parameter is whole on its stage
import torch


@torch.no_grad()
def clip_each(parameters, max_norm, pp_mesh=None):
    # each gradient by its own norm: a stage has its parameters whole
    for p in parameters:
        norm = p.grad.norm()
        p.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))


def step(schedule, model, optimizer, mesh):
    schedule.step()
    clip_each(list(model.parameters()), 1.0, pp_mesh=mesh["pp"])
    optimizer.step()
