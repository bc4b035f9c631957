# thread: https://github.com/verl-project/verl/pull/3691
"""Supervised fine-tuning trainer with FSDP and Ulysses sequence parallelism."""
from contextlib import nullcontext

import torch
import torch.distributed as dist
from flash_attn.bert_padding import index_first_axis, pad_input, rearrange, unpad_input
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from verl.utils.ulysses import gather_outputs_and_unpad, ulysses_pad_and_slice_inputs
from verl.workers.sharding_manager.fsdp_ulysses import FSDPUlyssesShardingManager


class FSDPSFTTrainer:
    def __init__(self, config, model: nn.Module):
        self.config = config
        world_size = dist.get_world_size()
        sp_size = config.ulysses_sequence_parallel_size
        self.device_mesh = init_device_mesh("cuda", (world_size,), mesh_dim_names=("fsdp",))
        self.ulysses_device_mesh = init_device_mesh(
            "cuda", (world_size // sp_size, sp_size), mesh_dim_names=("dp", "sp")
        )
        self.sharding_manager = FSDPUlyssesShardingManager(self.ulysses_device_mesh)
        self.fsdp_model = FSDP(model, device_mesh=self.device_mesh, use_orig_params=True)
        self.optimizer = torch.optim.AdamW(self.fsdp_model.parameters(), lr=config.optim.lr)

    def _per_token_loss(self, batch):
        """Loss of every token of the (padded) batch; the ranks of an sp group see the same batch."""
        input_ids, attention_mask = batch["input_ids"], batch["attention_mask"]
        sp_size = self.config.ulysses_sequence_parallel_size
        input_ids_rmpad, indices, *_ = unpad_input(input_ids.unsqueeze(-1), attention_mask)
        input_ids_rmpad = input_ids_rmpad.transpose(0, 1)
        position_ids_rmpad = index_first_axis(
            rearrange(batch["position_ids"].unsqueeze(-1), "b s ... -> (b s) ..."), indices
        ).transpose(0, 1)
        sliced, sliced_pos, pad_size = ulysses_pad_and_slice_inputs(
            input_ids_rmpad, position_ids_rmpad, sp_size=sp_size
        )
        rolled = torch.roll(input_ids_rmpad, shifts=-1, dims=1)
        rolled, _, _ = ulysses_pad_and_slice_inputs(rolled, None, sp_size)
        logits = self.fsdp_model(
            input_ids=sliced, attention_mask=None, position_ids=sliced_pos, use_cache=False
        ).logits.squeeze(0)
        loss = nn.functional.cross_entropy(logits.float(), rolled.squeeze(0), reduction="none")
        loss = gather_outputs_and_unpad(loss, gather_dim=0, unpad_dim=0, padding_size=pad_size)
        full = pad_input(loss.unsqueeze(-1), indices, batch=input_ids.size(0), seqlen=input_ids.size(1))
        return full.squeeze(-1)[:, :-1]

    def _compute_loss_and_backward(self, batch, n_micro_batches, do_backward=True):
        batch = {k: v.cuda() for k, v in batch.items()}
        loss_mask = batch.pop("loss_mask")[:, :-1]
        use_sp = self.config.ulysses_sequence_parallel_size > 1
        context = self.sharding_manager if use_sp else nullcontext()
        with context, torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self._per_token_loss(batch) * loss_mask
            valid_token_this_rank = torch.sum(loss_mask)
            if self.config.data.balance_dp_token:
                dist.all_reduce(valid_token_this_rank)
                dp_size = dist.get_world_size()
            else:
                dp_size = 1
            loss = torch.sum(loss) / (valid_token_this_rank + 1e-8) * dp_size
            loss = loss / n_micro_batches
            if do_backward:
                loss.backward()
            return loss.detach()

    def training_step(self, batch):
        self.fsdp_model.train()
        self.optimizer.zero_grad()
        size = self.config.data.micro_batch_size_per_gpu
        total = batch["input_ids"].size(0)
        micro_batches = [{k: v[i : i + size] for k, v in batch.items()} for i in range(0, total, size)]
        step_loss = torch.zeros((), device="cuda")
        for micro_batch in micro_batches:
            step_loss += self._compute_loss_and_backward(micro_batch, len(micro_batches))
        grad_norm = self.fsdp_model.clip_grad_norm_(max_norm=self.config.optim.clip_grad)
        self.optimizer.step()
        dist.all_reduce(step_loss, op=dist.ReduceOp.AVG)
        return {"train/loss": step_loss.item(), "train/grad_norm": float(grad_norm)}

    @torch.no_grad()
    def validation_step(self, batch):
        self.fsdp_model.eval()
        loss = self._compute_loss_and_backward(batch, 1, do_backward=False)
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        return loss
