"""Trainer with pipeline stages, FSDP inside a stage, and gradient accumulation."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def cross_entropy_loss(pred, labels):
    return F.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))


class RescaledLoss:
    def __init__(self, unwrapped_loss_fn, steps):
        self.unwrapped_loss_fn = unwrapped_loss_fn
        self.steps = steps

    def __call__(self, pred, labels):
        return self.unwrapped_loss_fn(pred, labels) / self.steps


class Trainer:
    def __init__(self, cfg, stage_module, loader):
        self.cfg = cfg
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.mesh = init_device_mesh("cuda", (cfg.pp_degree, cfg.dp_degree), mesh_dim_names=("pp", "dp"))
        self.pp_rank = self.mesh["pp"].get_local_rank()
        self.is_last = self.pp_rank == cfg.pp_degree - 1
        self.loader = iter(loader)

        self.model = stage_module.to(self.device)
        for block in self.model.layers.values():
            fully_shard(block, mesh=self.mesh["dp"], reshard_after_forward=False)
        fully_shard(self.model, mesh=self.mesh["dp"], reshard_after_forward=False)

        stage = PipelineStage(
            self.model, self.pp_rank, cfg.pp_degree, self.device, group=self.mesh.get_group("pp")
        )
        n_microbatches = cfg.local_batch_size // cfg.microbatch_size
        self.loss_fn = RescaledLoss(cross_entropy_loss, cfg.gradient_accumulation_steps * n_microbatches)
        self.schedule = Schedule1F1B(
            stage, n_microbatches=n_microbatches, loss_fn=self.loss_fn, scale_grads=False
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, fused=True)

    def forward_backward_step(self, input_ids, labels):
        losses = [] if self.is_last else None
        target = labels if self.is_last else None
        if self.pp_rank == 0:
            self.schedule.step(input_ids, target=target, losses=losses)
        else:
            self.schedule.step(target=target, losses=losses)
        if self.is_last:
            return torch.stack([l.detach() for l in losses]).mean() * self.loss_fn.steps
        return torch.tensor(0.0, device=self.device)

    def train_step(self):
        self.optimizer.zero_grad()
        step_loss = torch.zeros((), device=self.device)
        for _ in range(self.cfg.gradient_accumulation_steps):
            input_ids, labels = (t.to(self.device) for t in next(self.loader))
            step_loss += self.forward_backward_step(input_ids, labels) / self.cfg.gradient_accumulation_steps
        self.optimizer.step()
        return step_loss

    def train(self):
        for step in range(1, self.cfg.steps + 1):
            loss = self.train_step()
            if step % self.cfg.log_freq == 0:
                dist.all_reduce(loss, op=dist.ReduceOp.AVG, group=self.mesh.get_group("dp"))
                dist.all_reduce(loss, op=dist.ReduceOp.SUM, group=self.mesh.get_group("pp"))
                if dist.get_rank() == 0:
                    print(f"step: {step}  loss: {loss.item():.4f}")
