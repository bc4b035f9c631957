"""The first optimizer is thrown away before the model is sharded."""
import torch
from torch.distributed.fsdp import fully_shard
from mylib.optim import configure


def two_phase(model, cfg, probe_batch, loader, mesh):
    # learn-rate probe on the whole model, with an optimizer of its own that is thrown away
    probe = torch.optim.SGD(model.parameters(), lr=1e-6)
    model(probe_batch).mean().backward()
    probe.zero_grad()
    del probe
    fully_shard(model, mesh=mesh)
    opt = configure(cfg, model)
    for batch in loader:
        model(batch).mean().backward()
        opt.step()
        opt.zero_grad()
