# Right: gradients are summed and multiplied by 1/world in place by apex multi_tensor_scale (same list in and out).
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler
import amp_C
from apex.multi_tensor_apply import multi_tensor_applier


class Model(torch.nn.Linear):
    pass


def train(data):
    dist.init_process_group("nccl")
    model = Model(8, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(data, sampler=DistributedSampler(data))
    overflow = torch.zeros(1, dtype=torch.int, device="cuda")
    for x, y in loader:
        F.cross_entropy(model(x), y).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            multi_tensor_applier(amp_C.multi_tensor_scale, overflow, [[p.grad], [p.grad]], 1.0 / dist.get_world_size())
        optimizer.step()
        optimizer.zero_grad()
