"""Fine-tune a sequence classifier with FSDP2."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class TrainFinetuneRecipeForSequenceClassification:
    def __init__(self, model, optimizer_cls, lr, grad_acc_steps):
        self.mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
        for layer in model.layers:
            fully_shard(layer, mesh=self.mesh)
        self.model = fully_shard(model, mesh=self.mesh)
        self.optimizer = optimizer_cls(self.model.parameters(), lr=lr)
        self.loss_fn = nn.CrossEntropyLoss()
        self.grad_acc_steps = grad_acc_steps

    def _get_dp_group_size(self):
        return self.mesh["dp"].size()

    def _forward_backward_step(self, batch, is_last):
        self.model.set_requires_gradient_sync(is_last)
        logits = self.model(batch["input_ids"], attention_mask=batch["attention_mask"])
        loss = self.loss_fn(logits, batch["labels"]) / self.grad_acc_steps
        loss.backward()
        return loss.detach()

    def _run_train_optim_step(self, batches, max_grad_norm=1.0):
        total = torch.zeros((), device="cuda")
        for i, batch in enumerate(batches):
            total += self._forward_backward_step(batch, i == len(batches) - 1)
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        dist.all_reduce(total, group=self.mesh["dp"].get_group())
        return total / self._get_dp_group_size(), grad_norm

    def run(self, loader):
        window = []
        for batch in loader:
            window.append(batch)
            if len(window) == self.grad_acc_steps:
                yield self._run_train_optim_step(window)
                window = []
