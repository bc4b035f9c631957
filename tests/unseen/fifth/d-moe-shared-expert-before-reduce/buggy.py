"""MoE layer whose shared expert reduces its own output."""
import torch
import torch.nn.functional as F
from megatron.core.parallel_state import get_tensor_model_parallel_group
from megatron.core.tensor_parallel import RowParallelLinear, reduce_from_tensor_model_parallel_region


class MoELayer(torch.nn.Module):
    def __init__(self, config, router, w1_shard, w2_shard, shared_up, shared_down: RowParallelLinear):
        super().__init__()
        assert not config.sequence_parallel
        self.router = router
        self.w1 = torch.nn.Parameter(w1_shard)  # [experts, h, ffn/tp]
        self.w2 = torch.nn.Parameter(w2_shard)  # [experts, ffn/tp, h]
        self.shared_up, self.shared_down = shared_up, shared_down
        self.tp_group = get_tensor_model_parallel_group()

    def forward(self, tokens):
        # tokens: [experts, capacity, h] after dispatch, the same on all TP ranks
        routed = torch.bmm(F.silu(torch.bmm(tokens, self.w1)), self.w2)  # partial over TP
        shared, _ = self.shared_down(F.silu(self.shared_up(tokens)[0]))  # complete
        out = routed + shared  # BUG: a complete term joins a partial sum
        return reduce_from_tensor_model_parallel_region(out, group=self.tp_group)
