"""Loss scaling of the HF Trainer with token averaging across devices.

Source: https://github.com/huggingface/transformers/pull/45994
"""
import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, model, args, accelerator, dp_group):
        self.model, self.args, self.accelerator = model, args, accelerator
        self.dp_group = dp_group  # ranks with different batches
        pc = accelerator.parallelism_config
        # tensor-parallel ranks load the same batch
        self.tp_size = pc.tp_size if pc is not None else 1

    def get_num_items_in_batch(self, batch_samples, device):
        n = sum((b["labels"] != -100).sum() for b in batch_samples).to(device)
        if self.args.average_tokens_across_devices:
            dist.all_reduce(n, group=self.dp_group)
        return n

    def compute_loss(self, model, inputs, num_items_in_batch=None):
        # the model returns sum of the token losses / num_items_in_batch
        loss = model(**inputs, num_items_in_batch=num_items_in_batch).loss
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes  # BUG
        return loss

    def training_step(self, inputs, num_items_in_batch):
        self.model.train()
        loss = self.compute_loss(self.model, inputs, num_items_in_batch)
        self.accelerator.backward(loss)  # FSDP averages over dp_group
        return loss.detach()
