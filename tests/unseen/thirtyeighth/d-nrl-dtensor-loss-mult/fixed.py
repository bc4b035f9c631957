"""Training step of the DTensor policy worker."""
# thread: NVIDIA-NeMo/RL#1693
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from nemo_rl.algorithms.loss_functions import LossType
from nemo_rl.distributed.model_utils import to_local_if_dtensor


class DTensorPolicyWorkerV2:
    def __init__(self, model, optimizer, device_mesh, cfg):
        self.cfg = cfg
        self.optimizer = optimizer
        self.device_mesh = device_mesh
        self.dp_mesh = device_mesh["dp"]
        self.dp_size = self.dp_mesh.size()
        self.cp_size = device_mesh["cp"].size()
        for layer in model.model.layers:
            fully_shard(layer, mesh=device_mesh["dp_cp"])
        self.model = fully_shard(model, mesh=device_mesh["dp_cp"])

    def _count_valid(self, global_batch, loss_fn):
        """Sequences and tokens of the global batch; every cp rank holds the whole sequence."""
        to_reduce = torch.tensor(
            [
                global_batch["sample_mask"].sum(),
                (global_batch["token_mask"][:, 1:] * global_batch["sample_mask"].unsqueeze(-1)).sum(),
            ],
            device="cuda",
        )
        dist.all_reduce(to_reduce, group=self.dp_mesh.get_group())
        return to_reduce[0], to_reduce[1]

    def train(self, global_batch, loss_fn, mbs):
        assert loss_fn.loss_type in (LossType.TOKEN_LEVEL, LossType.SEQUENCE_LEVEL)
        global_valid_seqs, global_valid_toks = self._count_valid(global_batch, loss_fn)
        self.optimizer.zero_grad()
        losses = []
        for mb in global_batch.make_microbatch_iterator(mbs):
            logits = self.model(mb["input_ids"], attention_mask=mb["attention_mask"]).logits
            # with cp each rank contributes the terms of its own sequence shard
            loss, metrics = loss_fn(logits, mb, global_valid_seqs, global_valid_toks)
            losses.append(loss.detach())
            loss = loss * self.dp_size * self.cp_size
            loss.backward()

        grad_norm = torch.nn.utils.clip_grad_norm_(
            self.model.parameters(), max_norm=self.cfg["max_grad_norm"]
        )
        self.optimizer.step()
        total_loss = torch.stack(losses).sum()
        dist.all_reduce(total_loss, group=self.device_mesh["dp_cp"].get_group())
        return {"loss": total_loss.item(), "grad_norm": to_local_if_dtensor(grad_norm)}
