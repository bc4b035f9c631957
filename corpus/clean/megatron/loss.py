"""Loss of a training step: masked mean, scaled by the context-parallel size because DDP averages over it, and a logged average."""

# spmd: mesh dense = dp, cp, tp
from functools import partial

import torch
from megatron.core import mpu, tensor_parallel
from megatron.core.models.gpt import GPTModel
from megatron.training import get_args, get_timers
from megatron.training.utils import average_losses_across_data_parallel_group


def get_batch_on_this_cp_rank(batch):
    cp_size = mpu.get_context_parallel_world_size()
    if cp_size > 1:
        cp_rank = mpu.get_context_parallel_rank()
        for key, val in batch.items():
            if val is None:
                continue
            seq_dim = 1 if key != "attention_mask" else 2
            val = val.view(*val.shape[0:seq_dim], 2 * cp_size, val.shape[seq_dim] // (2 * cp_size), *val.shape[(seq_dim + 1) :])
            index = torch.tensor([cp_rank, (2 * cp_size - cp_rank - 1)], device="cpu", pin_memory=True).cuda(non_blocking=True)
            val = val.index_select(seq_dim, index)
            batch[key] = val.view(*val.shape[0:seq_dim], -1, *val.shape[(seq_dim + 2) :])
    return batch


class LanguageModelHead(torch.nn.Module):
    def __init__(self, output_layer, parallel_output=True):
        super().__init__()
        self.output_layer = output_layer
        self.parallel_output = parallel_output

    def forward(self, hidden_states, labels=None):
        logits, _ = self.output_layer(hidden_states)
        if labels is None:
            return logits.transpose(0, 1).contiguous()
        labels = labels.transpose(0, 1).contiguous()
        loss = tensor_parallel.vocab_parallel_cross_entropy(logits.float(), labels)
        return loss.transpose(0, 1).contiguous()


def loss_func(loss_mask, output_tensor):
    args = get_args()
    losses = output_tensor.float()
    loss_mask = loss_mask.view(-1).float()
    if args.context_parallel_size > 1:
        loss = torch.cat([torch.sum(losses.view(-1) * loss_mask).view(1), loss_mask.sum().view(1)])
        torch.distributed.all_reduce(loss, group=mpu.get_context_parallel_group())
        loss = loss[0] / loss[1]
    else:
        loss = torch.sum(losses.view(-1) * loss_mask) / loss_mask.sum()
    if args.check_for_nan_in_loss_and_grad:
        assert not loss.isnan(), f"rank {torch.distributed.get_rank()}: NaN in the loss"
    averaged_loss = average_losses_across_data_parallel_group([loss])
    return loss * args.context_parallel_size, {"lm loss": averaged_loss[0]}


def forward_step(data_iterator, model: GPTModel):
    timers = get_timers()
    timers("batch-generator").start()
    batch = get_batch_on_this_cp_rank(next(data_iterator))
    timers("batch-generator").stop()
    output_tensor = model(batch["tokens"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"])
    return output_tensor, partial(loss_func, batch["loss_mask"])
