"""torchtune: sums are multiplied by the data-parallel size and divided by all tokens before the step."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


def scale_grads(model, scaler):
    for p in model.parameters():
        if p.grad is not None:
            p.grad *= scaler


class Recipe:
    def __init__(self, model, mesh, accumulate, lr):
        self.dp_size = mesh.size()
        self.group = mesh.get_group()
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        self.model, self.accumulate = model, accumulate
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)

    def loss_step(self, batch):
        labels = batch.pop("labels")
        logits = self.model(**batch)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100)

    def train(self, loader):
        running, tokens = 0, 0
        for i, batch in enumerate(loader):
            n = (batch["labels"] != -100).sum()
            tokens += n
            # the criterion is a mean; undone here, the tokens of the whole step divide later
            loss = self.loss_step(batch) * n
            running += loss.detach()
            loss.backward()
            if (i + 1) % self.accumulate == 0:
                dist.all_reduce(tokens, group=self.group)
                dist.all_reduce(running, group=self.group)
                scale_grads(self.model, self.dp_size / tokens)
                norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).full_tensor()
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                print((running / tokens).item(), norm.item())
                running, tokens = 0, 0
