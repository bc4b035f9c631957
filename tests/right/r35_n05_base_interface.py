class Clipper:
    def clip(self, parameters, max_norm, process_group):
        raise NotImplementedError


class SingleGroupClipper(Clipper):
    """For runs without model parallelism; `process_group` is that of the interface."""

    def clip(self, parameters, max_norm, process_group):
        frozen_like, others = 0.0, 0.0
        for p in parameters:
            if getattr(p, "is_embedding", False):
                frozen_like += p.grad.norm() ** 2
            else:
                others += p.grad.norm() ** 2
        norm = (frozen_like + others) ** 0.5
        for p in parameters:
            p.grad.mul_(min(1.0, max_norm / (norm + 1e-6)))
        return norm


class ShardedClipper(Clipper):
    def clip(self, parameters, max_norm, process_group):
        import torch.distributed as dist

        total = sum(p.grad.norm() ** 2 for p in parameters)
        dist.all_reduce(total, group=process_group)
        for p in parameters:
            p.grad.mul_(min(1.0, max_norm / total.sqrt()))
