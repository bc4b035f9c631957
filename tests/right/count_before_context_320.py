import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel


def train(model, loader, dp, cp):
    mesh = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))
    dp_cp = mesh[("dp", "cp")]._flatten("dp_cp").get_group()
    opt = torch.optim.AdamW(model.parameters())
    for ids, labels in loader:
        ids, labels = ids.cuda(), labels.cuda()
        n = (labels != -100).sum()
        dist.all_reduce(n, group=mesh.get_group("dp"))
        with context_parallel(mesh["cp"], buffers=[ids, labels, model.freqs_cis], buffer_seq_dims=[1, 1, 0],
                              no_restore_buffers={ids, labels}):
            logits = model(ids)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / n
            loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=dp_cp)
        opt.step()
        opt.zero_grad()
