# RIGHT: the caller refuses pipelines
import torch


@torch.no_grad()
def clip(parameters, max_norm, pp_mesh=None):
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads)
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def step(model, optimizer, mesh):
    if mesh["pp"].size() != 1:
        raise NotImplementedError("no pipeline")
    clip(list(model.parameters()), 1.0, pp_mesh=mesh["pp"])
    optimizer.step()
