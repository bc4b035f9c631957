# Reduces overlapping gradient reducers (early apex/fairscale style): the all-reduces are started from hooks during
# backward, and the optimizer reads the gradients before the handles have been waited for.
import torch
import torch.distributed as dist


class OverlappingReducer:
    """Starts the all-reduce of a gradient as soon as it has been accumulated."""

    def __init__(self, module, group=None):
        self.group = group
        self.world_size = dist.get_world_size(group)
        self.pending = []
        for p in module.parameters():
            dist.broadcast(p.data, src=0)
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self._launch)

    def _launch(self, p):
        p.grad.div_(self.world_size)
        self.pending.append(dist.all_reduce(p.grad, group=self.group, async_op=True))

    def synchronize(self):
        for work in self.pending:
            work.wait()
        self.pending.clear()


def train(model, loader, lr, device):
    model = model.to(device)
    reducer = OverlappingReducer(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        reducer.synchronize()
        optimizer.step()
