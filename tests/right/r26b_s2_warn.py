# RIGHT: warns for pipelines then one-stage path
import torch


@torch.no_grad()
def clip(parameters, max_norm, pp_size=1, pp_mesh=None):
    if pp_size > 1:
        raise ValueError("clipping over stages is done by the pipeline engine")
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def step(model, optimizer, mesh, loss):
    loss.backward()
    clip(list(model.parameters()), 1.0, mesh["pp"].size(), mesh["pp"])
    optimizer.step()
