"""Train an FSDP2 model and log the norm of its gradients."""
# radixark/miles_diffusion PR 35: clip_grad_norm_ on DTensors returns a partial norm; logging took its local value.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Metrics:
    def __init__(self):
        self.values = {}

    def log(self, name, value):
        self.values.setdefault(name, []).append(value)


class Trainer:
    def __init__(self, model, args):
        self.args = args
        self.mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, mesh=self.mesh, mp_policy=policy)
        self.model = fully_shard(model, mesh=self.mesh, mp_policy=policy)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.metrics = Metrics()

    def forward_backward(self, batch):
        noise = torch.randn_like(batch["latents"])
        t = torch.rand(batch["latents"].shape[0], device=noise.device)
        noisy = batch["latents"] + t[:, None] * noise
        pred = self.model(noisy, t, batch["prompt_embeds"])
        loss = F.mse_loss(pred.float(), noise.float())
        (loss / self.args.grad_accum).backward()
        return loss.detach()

    def train_step(self, micro_batches):
        losses = [self.forward_backward(b) for b in micro_batches]
        grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        loss = torch.stack(losses).mean()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        self.metrics.log("train/loss", loss.item())
        self.metrics.log("train/grad_norm", grad_norm.to_local().item())  # BUG: the local value of a partial norm

    def train(self, loader):
        for micro_batches in loader:
            self.train_step(micro_batches)
