"""Router z-loss scaled for per-token loss."""
# NVIDIA/Megatron-LM PR 5047: every rank of tp_cp_group has its own tokens; the loss has to be scaled by all of them, not by its own.
import torch
from megatron.core import parallel_state
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


class TopKRouter(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.topk = config.moe_router_topk
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
        self.tp_cp_group = parallel_state.get_tensor_and_context_parallel_group()

    def gating(self, input):
        return torch.nn.functional.linear(input, self.weight)

    def apply_z_loss(self, logits):
        if not self.training or self.config.moe_z_loss_coeff is None:
            return logits
        # the coefficient is divided, since tp x cp ranks each add their mean
        z_loss_coeff = self.config.moe_z_loss_coeff / self.tp_cp_group.size()
        z_loss = torch.mean(torch.square(torch.logsumexp(logits, dim=-1))) * z_loss_coeff
        if self.config.calculate_per_token_loss:
            num_local_tokens = logits.shape[0]
            z_loss = z_loss * num_local_tokens * self.tp_cp_group.size()
        return MoEAuxLossAutoScaler.apply(logits, z_loss)

    def forward(self, input):
        # input: [s/(tp*cp), b, h]
        logits = self.gating(input)
        logits = self.apply_z_loss(logits.view(-1, self.config.num_moe_experts))
        probs, indices = torch.topk(torch.softmax(logits.float(), dim=-1), k=self.topk, dim=-1)
        return probs, indices


def finalize_model_grads(model, num_tokens, config):
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    torch.distributed.all_reduce(num_tokens, group=group)
    for param in model.parameters():
        torch.distributed.all_reduce(param.main_grad, group=group)
        if getattr(param, "sequence_parallel", False):
            torch.distributed.all_reduce(
                param.main_grad, group=parallel_state.get_tensor_model_parallel_group()
            )
        if config.calculate_per_token_loss:
            param.main_grad.div_(num_tokens)
