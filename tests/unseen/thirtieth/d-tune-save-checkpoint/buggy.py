"""Single-file recipe: full fine-tuning with FSDP2 and consolidated checkpoints."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class FullFinetuneRecipeDistributed:
    def __init__(self, cfg):
        self.cfg = cfg
        dist.init_process_group("cpu:gloo,cuda:nccl")
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self._is_rank_zero = self.rank == 0
        torch.cuda.set_device(self.rank % torch.cuda.device_count())

    def setup(self, model, full_state_dict):
        mesh = init_device_mesh("cuda", (self.world_size,))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        set_model_state_dict(
            model,
            full_state_dict if self._is_rank_zero else {},
            options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
        )
        self._model = model
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=self.cfg.lr)

    def save_checkpoint(self, epoch):
        start = time.perf_counter()
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        path = os.path.join(self.cfg.output_dir, f"epoch_{epoch}")
        if self._is_rank_zero:
            model_state = get_model_state_dict(self._model, options=options)  # BUG
            optim_state = get_optimizer_state_dict(self._model, self._optimizer, options=options)  # BUG
            os.makedirs(path, exist_ok=True)
            torch.save(model_state, os.path.join(path, "model.pt"))
            torch.save({"optim": optim_state, "epoch": epoch}, os.path.join(path, "recipe_state.pt"))
            print(f"checkpoint saved in {time.perf_counter() - start:.1f}s")
        dist.barrier()

    def _loss_step(self, batch):
        logits = self._model(batch["tokens"].cuda())
        labels = batch["labels"].cuda()
        return F.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100, reduction="sum"
        ), (labels != -100).sum()

    def train(self, dataloader):
        for epoch in range(self.cfg.epochs):
            dataloader.sampler.set_epoch(epoch)
            for idx, batch in enumerate(dataloader):
                loss_sum, num_tokens = self._loss_step(batch)
                dist.all_reduce(num_tokens)
                loss = loss_sum / num_tokens
                (loss * self.world_size).backward()
                grad_norm = torch.nn.utils.clip_grad_norm_(
                    self._model.parameters(), max_norm=self.cfg.clip_grad_norm
                ).full_tensor()
                self._optimizer.step()
                self._optimizer.zero_grad(set_to_none=True)

                loss = loss.detach()
                dist.all_reduce(loss)
                if self._is_rank_zero and idx % self.cfg.log_every_n_steps == 0:
                    print(f"{epoch}|{idx} loss {loss.item():.4f} grad_norm {grad_norm.item():.3f}")
            self.save_checkpoint(epoch)

    def cleanup(self):
        dist.destroy_process_group()
