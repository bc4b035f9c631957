"""FP16 training with fp32 master weights and a flat gradient all-reduce."""
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def prep_param_lists(model):
    model_params = [p for p in model.parameters() if p.requires_grad]
    master_params = [p.detach().clone().float().requires_grad_() for p in model_params]
    return model_params, master_params


def model_grads_to_master_grads(model_params, master_params):
    for model, master in zip(model_params, master_params):
        if master.grad is None:
            master.grad = torch.empty_like(master)
        master.grad.copy_(model.grad)


def allreduce_grads(params):
    grads = [p.grad for p in params]
    flat = _flatten_dense_tensors(grads)
    dist.all_reduce(flat)
    flat.div_(dist.get_world_size())
    for g, synced in zip(grads, _unflatten_dense_tensors(flat, grads)):
        g.copy_(synced)


def train_step(model, model_params, master_params, optimizer, batch, loss_scale):
    loss = model(**batch)
    (loss.float() * loss_scale).backward()
    model_grads_to_master_grads(model_params, master_params)
    allreduce_grads(model_params)  # BUG
    for master in master_params:
        master.grad.div_(loss_scale)
    optimizer.step()  # built over master_params
    with torch.no_grad():
        for p, master in zip(model_params, master_params):
            p.copy_(master)
    model.zero_grad()
    return loss.detach()
