# RIGHT: the mesh has pp of size one
import torch
from torch.distributed.device_mesh import init_device_mesh


@torch.no_grad()
def clip(parameters, max_norm, pp_mesh=None):
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def train(model, optimizer, loader, world):
    mesh = init_device_mesh("cuda", (1, world), mesh_dim_names=("pp", "dp"))
    for x in loader:
        model(x).mean().backward()
        clip(list(model.parameters()), 1.0, pp_mesh=mesh["pp"])
        optimizer.step()
