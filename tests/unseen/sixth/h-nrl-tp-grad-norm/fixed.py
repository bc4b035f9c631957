"""Global gradient norm with tensor parallelism."""
import torch
import torch.distributed as dist


@torch.no_grad()
def get_grad_norm(model, dp_cp_group, tp_group, norm_type=2.0, dtype=torch.float32):
    # parameters with tensor_model_parallel are cut over TP, the others have the
    # same gradient on all TP ranks; gradients are sharded over dp_cp_group
    grads_for_norm = []
    for p in model.parameters():
        if p.grad is None:
            continue
        if getattr(p, "tensor_model_parallel", False) or dist.get_rank(tp_group) == 0:
            grads_for_norm.append(p.grad.detach())
    total_norm = torch.zeros((), dtype=dtype, device="cuda")
    for grad in grads_for_norm:
        grad_norm = torch.linalg.vector_norm(grad, ord=norm_type, dtype=dtype)
        total_norm += torch.pow(grad_norm, norm_type)
    dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=dp_cp_group)
    dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=tp_group)
    return total_norm.item() ** (1.0 / norm_type)
