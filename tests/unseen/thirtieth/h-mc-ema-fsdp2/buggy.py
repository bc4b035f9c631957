"""EMA of an FSDP2 model: every rank follows its own shards, checkpoints hold full tensors."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


def _local(t):
    return t.to_local() if isinstance(t, DTensor) else t


class EMATracker:
    def __init__(self, model, decay=0.9999):
        self.decay = decay
        self.num_updates = 0
        self.params = dict(model.named_parameters())
        self.shadow = {n: _local(p.detach()).clone().float() for n, p in self.params.items()}

    @torch.no_grad()
    def update(self):
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        for name, p in self.params.items():
            self.shadow[name].lerp_(_local(p.detach()).float(), 1.0 - decay)

    @torch.no_grad()
    def swap(self):
        for name, p in self.params.items():
            local = _local(p.detach())
            tmp = local.clone()
            local.copy_(self.shadow[name])
            self.shadow[name].copy_(tmp)

    @torch.no_grad()
    def state_dict(self):
        """Collective: all ranks have to call it."""
        full = {}
        for name, p in self.params.items():
            shadow = self.shadow[name]
            if isinstance(p, DTensor):
                shadow = DTensor.from_local(shadow, p.device_mesh, p.placements)  # BUG
                shadow = shadow.full_tensor()
            full[name] = shadow.cpu()
        return {"decay": self.decay, "num_updates": self.num_updates, "shadow": full}

    @torch.no_grad()
    def load_state_dict(self, state):
        self.decay, self.num_updates = state["decay"], state["num_updates"]
        for name, p in self.params.items():
            value = state["shadow"][name].to(self.shadow[name].device)
            if isinstance(p, DTensor):
                value = distribute_tensor(value, p.device_mesh, p.placements).to_local()
            self.shadow[name].copy_(value)


def save_checkpoint(ema, step, path):
    state = ema.state_dict()
    if dist.get_rank() == 0:
        torch.save({"step": step, "ema": state}, path)
    dist.barrier()


def train(model, loader, valid_loader, conf):
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = model.cuda()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=conf.lr)
    ema = EMATracker(model, conf.ema_decay)

    for step, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ema.update()

        if step % conf.valid_every == 0:
            ema.swap()
            model.eval()
            with torch.no_grad():
                total = torch.stack([F.mse_loss(model(a.cuda()), b.cuda()) for a, b in valid_loader]).mean()
            dist.all_reduce(total, op=dist.ReduceOp.AVG)
            model.train()
            ema.swap()
        if step % conf.save_every == 0:
            save_checkpoint(ema, step, f"{conf.save_loc}/checkpoint_ema.pt")
