"""Training step of the diffusion transformer trainer (FSDP2, sequence parallel)."""
from collections import defaultdict

import torch
import torch.distributed as dist

from veomni.distributed.clip_grad_norm import veomni_clip_grad_norm
from veomni.distributed.parallel_state import get_parallel_state


class DiTTrainer:
    def __init__(self, base):
        # base.train_dataloader yields, per step, the list of micro-batches of this data rank:
        # global_batch_size / (micro_batch_size * dp_size) of them, micro_batch_size samples each
        self.base = base

    def postforward(self, outputs):
        loss_dict = outputs.loss  # name -> mean over the samples of the micro-batch
        loss_dict = {k: v / self.base.num_micro_batches for k, v in loss_dict.items()}
        loss = torch.stack(list(loss_dict.values())).sum()
        return loss, loss_dict

    def forward_backward_step(self, micro_batch):
        outputs = self.base.model(**micro_batch)
        loss, loss_dict = self.postforward(outputs)
        loss.backward()
        return loss, loss_dict

    def train_step(self, data_iterator):
        if get_parallel_state().sp_enabled:
            sp_group = get_parallel_state().sp_group
            obj_list = [next(data_iterator) if get_parallel_state().sp_rank == 0 else None]
            dist.broadcast_object_list(obj_list, src=dist.get_global_rank(sp_group, 0), group=sp_group)
            micro_batches = obj_list[0]
        else:
            micro_batches = next(data_iterator)

        total_loss, total_loss_dict = 0.0, defaultdict(float)
        self.base.num_micro_batches = len(micro_batches)
        for micro_batch in micro_batches:
            loss, loss_dict = self.forward_backward_step(micro_batch)
            total_loss += loss.item()
            for k, v in loss_dict.items():
                total_loss_dict[k] += v.item()

        grad_norm = veomni_clip_grad_norm(self.base.model, self.base.args.train.optimizer.max_grad_norm)
        self.base.optimizer.step()
        self.base.lr_scheduler.step()
        self.base.optimizer.zero_grad()
        return total_loss, dict(total_loss_dict), grad_norm
