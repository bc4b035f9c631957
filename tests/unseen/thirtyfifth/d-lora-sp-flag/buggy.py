"""LoRA around a row-parallel linear with sequence parallelism."""
# thread: modelscope/mcore-bridge#173
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.extensions.transformer_engine import TERowParallelLinear


class LoraRowParallel(torch.nn.Module):
    def __init__(self, base, r, alpha, config):
        super().__init__()
        self.base, self.scaling = base, alpha / r
        # reduce-scatters its output along the sequence when config.sequence_parallel
        self.lora_A = TERowParallelLinear(
            base.input_size, r, config=config, init_method=torch.nn.init.kaiming_uniform_,
            bias=False, input_is_parallel=True, skip_bias_add=False, is_expert=False)
        self.lora_B = torch.nn.Linear(r, base.output_size, bias=False)  # BUG: replicated, sees one sequence shard
        torch.nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        out, bias = self.base(x)
        h, _ = self.lora_A(x)
        return out + self.lora_B(h) * self.scaling, bias


def allreduce_non_tp_grads(model):
    grads = [p.main_grad for p in model.parameters()
             if p.requires_grad and getattr(p, "sequence_parallel", False)]
    for g in grads:
        dist.all_reduce(g, group=parallel_state.get_tensor_model_parallel_group())
