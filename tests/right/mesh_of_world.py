"""A mesh with one dim over all ranks; the count goes over the default group, which is the same."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def total(n):
    dist.all_reduce(n)
    return n


def evaluate(model, loader, mesh):
    model.eval()
    sums = torch.zeros(2, device="cuda")
    with torch.no_grad():
        for ids, labels in loader:
            logits = model(ids)
            sums[0] += F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)
            sums[1] += (labels != -100).sum()
    dist.all_reduce(sums, group=mesh.get_group("dp"))
    model.train()
    return (sums[0] / sums[1]).item()


def main(model, loader, eval_loader):
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for ids, labels in loader:
        n = total((labels != -100).sum())
        logits = model(ids)
        nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)
        loss = nll * mesh["dp"].size() / n
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        shown = nll.detach() / n
        dist.all_reduce(shown, group=mesh.get_group("dp"))
        print(shown.item(), norm.full_tensor().item())
    print(evaluate(model, eval_loader, mesh))
