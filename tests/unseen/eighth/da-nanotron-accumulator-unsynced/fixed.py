"""FP32 gradient accumulation beside half-precision parameters."""
import torch
import torch.distributed as dist


class FP32GradientAccumulator:
    def __init__(self, named_params):
        self.half = dict(named_params)
        numel = sum(p.numel() for p in self.half.values())
        self.flat = torch.zeros(numel, dtype=torch.float32, device="cuda")
        self.fp32_grads, offset = {}, 0
        for name, p in self.half.items():
            self.fp32_grads[name] = self.flat[offset:offset + p.numel()].view_as(p)
            offset += p.numel()

    def backward(self, loss):
        loss.backward()
        for name, p in self.half.items():
            self.fp32_grads[name].add_(p.grad)
            p.grad.zero_()

    def grad_buffers(self):
        return [self.flat]


def training_iteration(model, accumulator, master_params, optimizer, micro_batches, dp_pg):
    for batch in micro_batches:
        accumulator.backward(model(**batch) / len(micro_batches))
    for grad in accumulator.grad_buffers():
        dist.all_reduce(grad, op=dist.ReduceOp.AVG, group=dp_pg)
    for name, master in master_params.items():
        master.grad = accumulator.fp32_grads[name]
    optimizer.step()
    accumulator.flat.zero_()
    for name, p in accumulator.half.items():
        p.data.copy_(master_params[name])
