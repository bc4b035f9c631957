# Reduces Megatron-LM's clip_grads: parameters that every tensor-parallel rank holds in full (layer norms, biases of
# row-parallel layers) are added to the squared norm once per rank.
import torch
import torch.distributed as dist


def set_tensor_parallel_attr(module):
    """Mark column- and row-parallel weights; everything else is replicated over the group."""
    for name, p in module.named_parameters():
        p.tensor_model_parallel = name.endswith(("qkv.weight", "qkv.bias", "fc1.weight", "fc1.bias",
                                                 "proj.weight", "fc2.weight"))


def global_grad_norm(parameters, tp_group):
    total = torch.zeros(1, device="cuda")
    for p in parameters:
        if p.grad is None:
            continue
        total += p.grad.detach().float().pow(2).sum()  # BUG
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=tp_group)
    return total.sqrt()


def clip_and_step(model, optimizer, max_norm, tp_group):
    params = list(model.parameters())
    norm = global_grad_norm(params, tp_group)
    coeff = torch.clamp(max_norm / (norm + 1.0e-6), max=1.0)
    for p in params:
        if p.grad is not None:
            p.grad.mul_(coeff.to(p.grad.dtype))
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm
