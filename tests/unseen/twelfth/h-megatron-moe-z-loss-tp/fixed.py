"""Router of a mixture-of-experts layer with sequence parallelism."""
import torch
from megatron.core import parallel_state
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


def z_loss_func(logits, z_loss_coeff):
    """Encourages the router's logits to remain small to enhance stability."""
    return torch.mean(torch.square(torch.logsumexp(logits, dim=-1))) * z_loss_coeff


class TopKRouter(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        # MoE with tensor parallelism requires sequence parallelism
        assert config.sequence_parallel or parallel_state.get_tensor_model_parallel_world_size() == 1
        self.config = config
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        config.init_method(self.weight)
        # summed over the tensor parallel group in finalize_model_grads
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def apply_z_loss(self, logits):
        """logits: [tokens of this sequence parallel shard, num_experts]"""
        if self.config.moe_z_loss_coeff is not None:
            moe_z_loss_coeff = (
                self.config.moe_z_loss_coeff / parallel_state.get_tensor_model_parallel_world_size()
            )
            z_loss = z_loss_func(logits, moe_z_loss_coeff)
            logits = MoEAuxLossAutoScaler.apply(logits, z_loss)
        return logits

    def forward(self, hidden):
        logits = torch.nn.functional.linear(hidden, self.weight).view(-1, self.config.num_moe_experts)
        logits = self.apply_z_loss(logits)
        scores, indices = torch.topk(logits, k=self.config.moe_router_topk, dim=1)
        return torch.softmax(scores, dim=-1, dtype=torch.float32).type_as(logits), indices


def allreduce_layernorm_grads(model, config):
    group = parallel_state.get_tensor_model_parallel_group()
    for param in model.parameters():
        if config.sequence_parallel and getattr(param, "sequence_parallel", False):
            torch.distributed.all_reduce(param.main_grad, group=group)
