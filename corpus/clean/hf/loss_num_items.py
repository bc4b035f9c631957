"""A trainer that divides a sum of token losses by the tokens of all processes, counted before the steps, and shows the mean over processes."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def causal_lm_loss(logits, labels, num_items_in_batch=None, ignore_index=-100):
    labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:].contiguous()
    reduction = "sum" if num_items_in_batch is not None else "mean"
    loss = F.cross_entropy(
        logits.float().view(-1, logits.size(-1)), labels.view(-1), ignore_index=ignore_index, reduction=reduction
    )
    return loss / num_items_in_batch if reduction == "sum" else loss


class Trainer:
    def __init__(self, model, args, optimizer):
        self.args, self.optimizer = args, optimizer
        self.model = DistributedDataParallel(model.cuda()) if dist.get_world_size() > 1 else model.cuda()
        self.tr_loss = torch.tensor(0.0, device="cuda")

    def get_batch_samples(self, iterator, num_batches):
        samples = [batch for _, batch in zip(range(num_batches), iterator)]
        num_items = sum((batch["labels"][..., 1:] != -100).sum() for batch in samples).cuda()
        if self.args.average_tokens_across_devices and dist.get_world_size() > 1:
            dist.all_reduce(num_items)
        return samples, num_items

    def training_step(self, inputs, num_items_in_batch):
        labels = inputs.pop("labels")
        loss = causal_lm_loss(self.model(**inputs).logits, labels, num_items_in_batch)
        if self.args.average_tokens_across_devices:
            # The wrapper takes the mean over processes of what is a part of one sum.
            loss = loss * dist.get_world_size()
        loss.backward()
        return loss.detach()

    def log(self, step):
        value = self.tr_loss.clone()
        dist.all_reduce(value)
        self.tr_loss -= self.tr_loss
        return {"step": step, "loss": value.item() / dist.get_world_size()}

    def train(self, loader, steps):
        iterator = iter(loader)
        for step in range(steps):
            samples, num_items = self.get_batch_samples(iterator, self.args.gradient_accumulation_steps)
            for inputs in samples:
                inputs = {k: v.cuda() for k, v in inputs.items()}
                self.tr_loss += self.training_step(inputs, num_items)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
            self.optimizer.step()
            self.model.zero_grad()
            if dist.get_rank() == 0 or self.args.log_on_each_node:
                print(f"{step}: done on {dist.get_rank()}")
            print(self.log(step))
