"""BF16 optimizer with a separate fp32 gradient accumulator, driven by the engine."""
import torch

from deepspeed import comm as dist


class BF16_Optimizer:
    def __init__(self, bf16_params, base_optimizer):
        self.bf16_params = list(bf16_params)
        self.fp32_params = [p.detach().clone().float() for p in self.bf16_params]
        self.fp32_gradients = [torch.zeros_like(p) for p in self.fp32_params]
        self.base_optimizer = base_optimizer(self.fp32_params)

    @torch.no_grad()
    def update_hp_grads(self):
        for hp_grad, lp in zip(self.fp32_gradients, self.bf16_params):
            hp_grad.add_(lp.grad.to(hp_grad.dtype))
            lp.grad.zero_()

    def backward_epilogue(self):
        self.update_hp_grads()

    def get_grads_for_reduction(self):
        return self.fp32_gradients

    @torch.no_grad()
    def step(self):
        for p, g in zip(self.fp32_params, self.fp32_gradients):
            p.grad = g
        self.base_optimizer.step()
        for lp, hp, g in zip(self.bf16_params, self.fp32_params, self.fp32_gradients):
            lp.copy_(hp)
            g.zero_()


class DeepSpeedEngine:
    def __init__(self, module, optimizer, dp_group, gradient_accumulation_steps):
        self.module, self.optimizer, self.dp_group = module, optimizer, dp_group
        self.gas, self.micro_steps = gradient_accumulation_steps, 0

    def allreduce_gradients(self):
        if (self.micro_steps + 1) % self.gas == 0:
            for grad in self.optimizer.get_grads_for_reduction():
                grad.div_(dist.get_world_size(self.dp_group))
                dist.all_reduce(grad, group=self.dp_group)

    def backward(self, loss):
        (loss / self.gas).backward()
        self.allreduce_gradients()  # BUG: the last micro-batch is added to the accumulator after its reduction
        self.optimizer.backward_epilogue()

    def step(self):
        self.micro_steps += 1
        if self.micro_steps % self.gas == 0:
            self.optimizer.step()
