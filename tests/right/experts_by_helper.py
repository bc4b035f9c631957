"""Expert parallel, averaged over the world (loss of each rank is the mean of its own tokens, all ranks have as many).
Experts get the tokens of all ep ranks by the all-to-all, so their gradient holds ep terms already: sum over dp, divided by dp*ep: right."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dnn
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh


class MoE(nn.Module):
    def __init__(self, dim, num_experts, ep_mesh):
        super().__init__()
        self.ep_group = ep_mesh.get_group()
        self.gate = nn.Linear(dim, num_experts)
        self.experts = nn.ModuleList([nn.Linear(dim, dim) for _ in range(num_experts // ep_mesh.size())])

    def forward(self, x):
        # capacity dispatch: [experts, capacity, dim]
        got = dnn.all_to_all_single(torch.empty_like(x), x, group=self.ep_group)
        out = torch.stack([e(t) for e, t in zip(self.experts, got.chunk(len(self.experts)))])
        return dnn.all_to_all_single(torch.empty_like(out), out, group=self.ep_group)


def is_expert(name):
    return ".experts." in name


def sync_gradients(model, dp_group):
    for name, p in model.named_parameters():
        if is_expert(name):
            dist.all_reduce(p.grad, group=dp_group)
        else:
            dist.all_reduce(p.grad)
        p.grad.div_(dist.get_world_size())


def main(batches, loss_fn):
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "ep"))
    model = nn.ModuleList([MoE(8, 16, mesh["ep"])]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        optimizer.zero_grad()
        loss_fn(model, batch).backward()
        sync_gradients(model, mesh["dp"].get_group())
        optimizer.step()
