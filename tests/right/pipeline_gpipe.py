"""A small GPipe schedule: only the last stage divides by the micro batches."""
import torch
import torch.distributed as dist


class Pipe:
    def __init__(self, stage, group, shape, n_micro):
        self.stage, self.group, self.shape, self.n = stage, group, shape, n_micro
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.first, self.last = self.rank == 0, self.rank == self.size - 1
        self.prev = None if self.first else dist.get_global_rank(group, self.rank - 1)
        self.next = None if self.last else dist.get_global_rank(group, self.rank + 1)

    def recv_forward(self):
        if self.first:
            return None
        x = torch.empty(self.shape, device="cuda", requires_grad=True)
        dist.recv(x.detach(), src=self.prev)
        return x

    def forward(self, x, batch, losses):
        out = self.stage(batch["tokens"] if self.first else x)
        if self.last:
            loss = torch.nn.functional.cross_entropy(out.flatten(0, 1), batch["labels"].flatten())
            losses.append(loss.detach())
            return loss / self.n
        dist.send(out.detach(), dst=self.next)
        return out

    def backward(self, x, out):
        if self.last:
            out.backward()
        else:
            grad = torch.empty_like(out)
            dist.recv(grad, src=self.next)
            out.backward(grad)
        if not self.first:
            dist.send(x.grad, dst=self.prev)

    def run(self, batches):
        queue, losses = [], []
        for batch in batches:
            x = self.recv_forward()
            queue.append((x, self.forward(x, batch, losses)))
        while queue:
            self.backward(*queue.pop(0))
        return losses


def train(pipe, loader, optimizer, dp_group):
    for batches in loader:
        pipe.run(batches)
        for p in pipe.stage.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
        optimizer.step()
        optimizer.zero_grad()
