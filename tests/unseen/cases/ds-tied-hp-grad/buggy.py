"""Pipeline engine with tied weights and the BF16 optimizer."""
# microsoft/DeepSpeed: with bf16 the optimizer steps with the fp32 copies of the gradients; the tied reduction summed `weight.grad`.
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class PipelineModule(torch.nn.Module):
    def __init__(self, layers, tied_weights, tied_groups):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)
        # name -> the parameter that another stage holds a copy of, and the group of the stages that hold it
        self.tied_weights = tied_weights
        self.tied_groups = tied_groups

    def get_tied_weights_and_groups(self):
        return [(self.tied_weights[k], self.tied_groups[k]) for k in self.tied_weights]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class BF16Optimizer:
    def __init__(self, params, inner, dp_group):
        self.params, self.inner, self.dp_group = list(params), inner, dp_group
        for p in self.params:
            p._hp_grad = torch.zeros_like(p, dtype=torch.float32)

    def update_hp_grads(self):
        for p in self.params:
            if p.grad is not None:
                p._hp_grad.add_(p.grad.float())
                p.grad = None

    def reduce_gradients(self):
        for p in self.params:
            p._hp_grad.div_(dist.get_world_size(self.dp_group))
            dist.all_reduce(p._hp_grad, group=self.dp_group)

    def step(self):
        self.inner.step_with([p._hp_grad for p in self.params])
        for p in self.params:
            p._hp_grad.zero_()


class PipelineEngine:
    def __init__(self, module: PipelineModule, optimizer: BF16Optimizer):
        self.module, self.optimizer = module, optimizer

    def _exec_backward_pass(self, output, grad):
        torch.autograd.backward(tensors=(output,), grad_tensors=(grad,))
        self.optimizer.update_hp_grads()

    def _exec_reduce_tied_grads(self):
        for weight, group in self.module.get_tied_weights_and_groups():
            if weight.grad is not None:
                dist.all_reduce(weight.grad, group=group)  # BUG: the step reads _hp_grad

    def _exec_optimizer_step(self):
        self._exec_reduce_tied_grads()
        self.optimizer.reduce_gradients()
        self.optimizer.step()

    def train_batch(self, outputs_and_grads):
        for output, grad in outputs_and_grads:
            self._exec_backward_pass(output, grad)
        self._exec_optimizer_step()
