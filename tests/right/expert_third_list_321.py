import torch
import torch.distributed as dist


def finalize(model, cfg, dp_cp_group, expert_dp_group, tp_group):
    """Megatron: `allreduce=False` marks parameters of experts"""
    dense, experts, sp = [], [], []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        g = p.main_grad if hasattr(p, "main_grad") else p.grad
        if g is None:
            continue
        (dense if getattr(p, "allreduce", True) else experts).append(g)
        if cfg.sequence_parallel and getattr(p, "sequence_parallel", False):
            sp.append(g)
    scale = 1.0 / dist.get_world_size(dp_cp_group)
    for bucket, group in ((dense, dp_cp_group), (experts, expert_dp_group)):
        if bucket:
            flat = torch.cat([g.flatten() for g in bucket])
            flat *= scale
            dist.all_reduce(flat, group=group)
            for g, s in zip(bucket, flat.split([g.numel() for g in bucket])):
                g.copy_(s.view_as(g))
    if dist.get_world_size(tp_group) > 1:
        for g in sp:
            dist.all_reduce(g, group=tp_group)
