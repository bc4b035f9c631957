# RIGHT: branch at the caller: one stage
import torch
import torch.distributed as dist


@torch.no_grad()
def clip_one_stage(parameters, max_norm, pp_mesh=None):
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


@torch.no_grad()
def clip_stages(parameters, max_norm, pp_mesh):
    total = torch.nn.utils.get_total_norm([p.grad for p in parameters]) ** 2
    dist.all_reduce(total, group=pp_mesh.get_group())
    norm = total.sqrt()
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def step(schedule, model, optimizer, mesh):
    schedule.step()
    if mesh["pp"].size() == 1:
        clip_one_stage(list(model.parameters()), 1.0, pp_mesh=mesh["pp"])
    else:
        clip_stages(list(model.parameters()), 1.0, pp_mesh=mesh["pp"])
    optimizer.step()
