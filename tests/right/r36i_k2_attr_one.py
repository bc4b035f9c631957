# RIGHT: the constructor makes a list of one part.
import torch
import torch.distributed as dist


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, pp_mesh=None):
    parameters = list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.nn.utils.get_total_norm(grads, norm_type)
    if pp_mesh is not None:
        total_norm **= norm_type
        dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=pp_mesh.get_group())
        total_norm **= 1.0 / norm_type
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm)
    return total_norm


class Trainer:
    def __init__(self, stage, mesh):
        self.model_parts = [stage.submod]
        self.mesh = mesh
        self.opt = torch.optim.AdamW(stage.submod.parameters())

    def finish(self):
        for part in self.model_parts:
            clip_grad_norm_(part.parameters(), 1.0, pp_mesh=self.mesh["pp"])
        self.opt.step()
