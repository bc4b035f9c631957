"""Sharded Muon step that overlaps the collectives with the computation."""
import torch
import torch.distributed as dist


class DistMuon(torch.optim.Optimizer):
    """All parameters of a group have one shape; group["chunk"] is the number of matrices per rank (padded)."""

    def __init__(self, param_groups, orthogonalize):
        self.orthogonalize = orthogonalize
        for group in param_groups:
            group["chunk"] = -(-len(group["params"]) // dist.get_world_size())
        super().__init__(param_groups, dict(lr=0.02, momentum=0.95))

    def _launch_reduce(self, group, world):
        params, chunk = group["params"], group["chunk"]
        stacked = torch.zeros(chunk * world, *params[0].shape, dtype=params[0].dtype, device=params[0].device)
        stacked[: len(params)].copy_(torch.stack([p.grad for p in params]))
        shard = torch.empty_like(stacked[:chunk])
        work = dist.reduce_scatter_tensor(shard, stacked, op=dist.ReduceOp.AVG, async_op=True)
        return dict(work=work, grad=shard, stacked=stacked)

    def _launch_gather(self, group, info, rank, world):
        info["work"].wait()
        params, chunk, start = group["params"], group["chunk"], rank * group["chunk"]
        owned = params[start : start + chunk]
        state = self.state[params[0]]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(info["grad"])
        state["momentum"].lerp_(info["grad"], 1 - group["momentum"])
        updated = torch.zeros_like(info["grad"])
        if owned:
            direction = self.orthogonalize(state["momentum"][: len(owned)])
            updated[: len(owned)].copy_(torch.stack(owned) - group["lr"] * direction)
        gathered = torch.empty_like(info["stacked"])
        future = dist.all_gather_into_tensor(gathered, updated, async_op=True).get_future()  # BUG
        return dict(future=future, gathered=gathered, params=params)

    @torch.no_grad()
    def step(self):
        rank, world = dist.get_rank(), dist.get_world_size()
        infos = [self._launch_reduce(group, world) for group in self.param_groups]
        gathers = [self._launch_gather(g, i, rank, world) for g, i in zip(self.param_groups, infos)]
        for info in gathers:
            info["future"].wait()
            torch._foreach_copy_(info["params"], list(info["gathered"][: len(info["params"])].unbind(0)))
