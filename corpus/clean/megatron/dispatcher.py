"""Expert-parallel token dispatcher with all-to-all, and experts whose parameters are outside the data-parallel reduction."""

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import all_to_all


class ExpertMLP(torch.nn.Module):
    def __init__(self, hidden, ffn, dtype=torch.bfloat16):
        super().__init__()
        self.w1 = torch.nn.Parameter(torch.empty(ffn, hidden, dtype=dtype))
        self.w2 = torch.nn.Parameter(torch.empty(hidden, ffn, dtype=dtype))
        for parameter in self.parameters():
            setattr(parameter, "allreduce", False)

    def forward(self, x):
        return F.linear(F.gelu(F.linear(x, self.w1)), self.w2)


class MoELayer(torch.nn.Module):
    def __init__(self, config, router):
        super().__init__()
        self.ep_group = parallel_state.get_expert_model_parallel_group()
        self.ep_size = parallel_state.get_expert_model_parallel_world_size()
        self.num_experts = config.num_moe_experts
        self.num_local_experts = self.num_experts // self.ep_size
        self.topk = config.moe_router_topk
        self.router = router
        self.experts = torch.nn.ModuleList(
            [ExpertMLP(config.hidden_size, config.ffn_hidden_size) for _ in range(self.num_local_experts)]
        )

    def preprocess(self, indices):
        tokens_per_expert = torch.bincount(indices.view(-1), minlength=self.num_experts)
        input_splits = tokens_per_expert.reshape(self.ep_size, self.num_local_experts).sum(axis=1)
        gathered = torch.empty(self.ep_size * self.num_experts, dtype=tokens_per_expert.dtype, device=indices.device)
        torch.distributed.all_gather_into_tensor(gathered, tokens_per_expert, group=self.ep_group)
        gathered = gathered.view(self.ep_size, self.ep_size, self.num_local_experts)
        mine = gathered[:, torch.distributed.get_rank(self.ep_group)]
        return input_splits.tolist(), mine.sum(axis=-1).tolist(), mine

    def forward(self, hidden_states):
        shape = hidden_states.shape
        hidden_states = hidden_states.view(-1, shape[-1])
        probs, indices = self.router(hidden_states)
        input_splits, output_splits, per_source = self.preprocess(indices)
        order = torch.argsort(indices.view(-1), stable=True)
        permuted = hidden_states.index_select(0, order // self.topk)
        received = all_to_all(self.ep_group, permuted, output_splits, input_splits)

        chunks = torch.split(received, per_source.reshape(-1).tolist(), dim=0)
        outputs = [None] * len(chunks)
        for local, expert in enumerate(self.experts):
            ids = range(local, len(chunks), self.num_local_experts)
            out = expert(torch.cat([chunks[i] for i in ids], dim=0))
            for i, piece in zip(ids, torch.split(out, [chunks[i].size(0) for i in ids], dim=0)):
                outputs[i] = piece
        returned = all_to_all(self.ep_group, torch.cat(outputs, dim=0), input_splits, output_splits)

        unpermuted = torch.zeros_like(returned)
        unpermuted = unpermuted.index_copy(0, order, returned)
        combined = unpermuted.view(-1, self.topk, shape[-1]) * probs.unsqueeze(-1)
        return combined.sum(dim=1).view(shape)
