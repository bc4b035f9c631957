"""Distributed Adam: gradients reduce-scattered in hooks of the step, parameters gathered afterwards."""
import torch
import torch.distributed as dist


class DistAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.95), eps=1e-10):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        super().__init__(list(params), dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        futures, shards = [], []
        for group in self.param_groups:
            for p in group["params"]:
                shard = torch.empty_like(p.grad[: p.shape[0] // self.world])
                work = dist.reduce_scatter_tensor(shard, p.grad, op=dist.ReduceOp.AVG, async_op=True)
                futures.append(work.get_future())
                shards.append(shard)
        idx, gathers = 0, []
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                futures[idx].wait()
                rows = p.shape[0] // self.world
                own = p[self.rank * rows : (self.rank + 1) * rows]
                g = shards[idx]
                state = self.state[p]
                if not state:
                    state["t"] = 0
                    state["m"] = torch.zeros_like(own)
                    state["v"] = torch.zeros_like(own)
                state["t"] += 1
                m, v, t = state["m"], state["v"], state["t"]
                m.mul_(b1).add_(g, alpha=1 - b1)
                v.mul_(b2).addcmul_(g, g, value=1 - b2)
                update = (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + group["eps"])
                own.add_(update, alpha=-group["lr"])
                gathers.append(dist.all_gather_into_tensor(p, own, async_op=True).get_future())
                idx += 1
        torch.futures.collect_all(gathers).wait()


def train(model, loader, steps, accumulate):
    optimizer = DistAdam(model.parameters())
    data = iter(loader)
    for _ in range(steps):
        for _ in range(accumulate):
            x, y = next(data)
            (model(x, y) / accumulate).backward()
        optimizer.step()
        model.zero_grad(set_to_none=True)
