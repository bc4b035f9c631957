# Reduces Megatron-LM's finalize_model_grads with qk_layernorm: the weights of the query and key norms are replicated
# over tensor parallel but see only the heads of their rank, and only marked parameters are reduced.
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class RMSNorm(torch.nn.Module):
    def __init__(self, dim, eps=1e-6, sequence_parallel=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(dim))
        self.eps = eps
        setattr(self.weight, "sequence_parallel", sequence_parallel)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class SelfAttention(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        h, self.d = config.hidden_size, config.hidden_size // config.num_attention_heads
        self.linear_qkv = ColumnParallelLinear(h, 3 * h, config=config, init_method=config.init_method,
                                               gather_output=False, bias=False)
        self.q_layernorm = RMSNorm(self.d)
        self.k_layernorm = RMSNorm(self.d)
        self.linear_proj = RowParallelLinear(h, h, config=config, init_method=config.output_layer_init_method,
                                             input_is_parallel=True, skip_bias_add=False, bias=False)

    def forward(self, x):
        qkv, _ = self.linear_qkv(x)
        s, b, _ = qkv.shape
        q, k, v = qkv.view(s, b, -1, 3 * self.d).permute(1, 2, 0, 3).split(self.d, dim=-1)
        q, k = self.q_layernorm(q), self.k_layernorm(k)
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.linear_proj(o.permute(2, 0, 1, 3).reshape(s, b, -1))[0]


def allreduce_layernorm_grads(model):
    for name, p in model.named_parameters():
        if p.grad is not None and getattr(p, "sequence_parallel", False):  # BUG
            dist.all_reduce(p.grad, group=parallel_state.get_tensor_model_parallel_group())
