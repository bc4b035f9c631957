"""A small ZeRO-2 optimizer with manual gradient accumulation, and a DPO step using it."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class Zero2Optimizer:
    def __init__(self, params, dp_group, lr, weight_decay=0.0, max_grad_norm=1.0):
        self.params = [p for p in params if p.requires_grad]
        self.dp_group = dp_group
        self.world_size = dist.get_world_size(dp_group)
        self.rank = dist.get_rank(dp_group)
        self.max_grad_norm = max_grad_norm

        flat = _flatten_dense_tensors([p.data for p in self.params]).float()
        self.numel = flat.numel()
        self.pad = (-self.numel) % self.world_size
        flat = F.pad(flat, (0, self.pad))
        self.master = torch.nn.Parameter(flat.chunk(self.world_size)[self.rank].clone())
        self.grad_partition = torch.zeros_like(self.master)
        self.inner = torch.optim.AdamW([self.master], lr=lr, weight_decay=weight_decay)

    def reduce_gradients(self):
        """After every backward: this rank's slice of the gradient, the rest is dropped."""
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.params]
        flat = F.pad(_flatten_dense_tensors(grads).float(), (0, self.pad))
        shard = torch.empty_like(self.grad_partition)
        dist.reduce_scatter_tensor(shard, flat / self.world_size, group=self.dp_group)
        self.grad_partition.copy_(shard)  # BUG
        for p in self.params:
            p.grad = None

    def _clip(self):
        sq = self.grad_partition.norm() ** 2
        dist.all_reduce(sq, group=self.dp_group)
        norm = sq.sqrt()
        self.grad_partition.mul_(torch.clamp(self.max_grad_norm / (norm + 1e-6), max=1.0))
        return norm

    def step(self):
        norm = self._clip()
        self.master.grad = self.grad_partition
        self.inner.step()
        self.grad_partition.zero_()

        full = torch.empty(self.numel + self.pad, device=self.master.device)
        dist.all_gather_into_tensor(full, self.master.data, group=self.dp_group)
        for p, new in zip(self.params, _unflatten_dense_tensors(full[: self.numel], self.params)):
            p.data.copy_(new)
        return norm


def sequence_logps(model, input_ids, labels):
    logits = model(input_ids)[:, :-1].float()
    labels = labels[:, 1:]
    mask = labels != -100
    logps = logits.log_softmax(-1).gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (logps * mask).sum(-1)


def dpo_loss(policy, batch, beta):
    chosen = sequence_logps(policy, batch["chosen_input_ids"], batch["chosen_labels"])
    rejected = sequence_logps(policy, batch["rejected_input_ids"], batch["rejected_labels"])
    margin = (chosen - rejected) - (batch["ref_chosen_logps"] - batch["ref_rejected_logps"])
    return -F.logsigmoid(beta * margin).mean()


def train(policy, loader, optimizer, accumulation_steps, beta, num_updates):
    iterator = iter(loader)
    for update in range(num_updates):
        running = 0.0
        for _ in range(accumulation_steps):
            loss = dpo_loss(policy, next(iterator), beta)
            (loss / accumulation_steps).backward()
            optimizer.reduce_gradients()
            running += loss.detach() / accumulation_steps
        grad_norm = optimizer.step()
        if dist.get_rank() == 0:
            print(f"update {update} loss {running.item():.4f} grad_norm {grad_norm.item():.3f}")
