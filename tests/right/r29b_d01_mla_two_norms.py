# right: latent norms in front of the column layers are not marked, head norms behind are
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear


class LatentAttention(torch.nn.Module):
    def __init__(self, config, q_rank, kv_rank, head):
        super().__init__()
        size = config.num_attention_heads * head
        self.head = head
        self.q_down = torch.nn.Linear(config.hidden_size, q_rank, bias=False)
        self.kv_down = torch.nn.Linear(config.hidden_size, kv_rank, bias=False)
        self.q_latent_norm = torch.nn.RMSNorm(q_rank)
        self.kv_latent_norm = torch.nn.RMSNorm(kv_rank)
        self.q_up = ColumnParallelLinear(q_rank, size, config=config, init_method=config.init_method, bias=False)
        self.kv_up = ColumnParallelLinear(kv_rank, 2 * size, config=config, init_method=config.init_method, bias=False)
        self.q_head_norm = torch.nn.RMSNorm(head)
        self.k_head_norm = torch.nn.RMSNorm(head)
        self.out = RowParallelLinear(
            size, config.hidden_size, config=config, init_method=config.init_method, bias=False,
            input_is_parallel=True, skip_bias_add=True,
        )
        # heads are split, so each rank has the gradient of its own heads alone
        for norm in (self.q_head_norm, self.k_head_norm):
            norm.weight.partial_over_tp = True

    def forward(self, x):
        q, _ = self.q_up(self.q_latent_norm(self.q_down(x)))
        kv, _ = self.kv_up(self.kv_latent_norm(self.kv_down(x)))
        s, b, _ = q.shape
        q = q.view(s, b, -1, self.head)
        k, v = kv.view(s, b, -1, 2 * self.head).chunk(2, dim=-1)
        q, k, v = (t.permute(1, 2, 0, 3) for t in (self.q_head_norm(q), self.k_head_norm(k), v))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.permute(2, 0, 1, 3).reshape(s, b, -1))[0]


def finish(model):
    for p in model.parameters():
        if getattr(p, "partial_over_tp", False):
            dist.all_reduce(p.grad, group=mpu.get_tensor_model_parallel_group())
