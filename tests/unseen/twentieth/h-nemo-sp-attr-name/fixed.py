"""All-reduce of norm gradients under sequence parallelism."""
import torch
from megatron.core import parallel_state


class RMSNorm(torch.nn.Module):
    def __init__(self, hidden_size, eps=1e-5, sequence_parallel=False):
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        setattr(self.weight, "sequence_parallel", sequence_parallel)

    def forward(self, x):
        # x: [s/tp, b, h] with sequence parallelism
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class MegatronGPTModel:
    def __init__(self, cfg, model):
        self.cfg, self.model = cfg, model

    def allreduce_sequence_parallel_gradients(self):
        grads = []
        for param in self.model.parameters():
            if getattr(param, "sequence_parallel", False):
                grads.append(param.grad.data)
        coalesced = torch._utils._flatten_dense_tensors(grads)
        torch.distributed.all_reduce(coalesced, group=parallel_state.get_tensor_model_parallel_group())
        for buf, synced in zip(grads, torch._utils._unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)

    def training_step(self, batch, optimizer):
        self.model(batch).backward()
        if self.cfg.get("sequence_parallel", False):
            self.allreduce_sequence_parallel_gradients()
        optimizer.step()
