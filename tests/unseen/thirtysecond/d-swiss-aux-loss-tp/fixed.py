"""Top-k router on sequence shards with a load-balancing loss.
swiss-ai/Megatron-LM cac8d1a3, "Fix Aux Loss Scaling when TP>1".
"""
import torch
from megatron.core import parallel_state
from megatron.core.transformer.module import MegatronModule


class MoEAuxLossAutoScaler(torch.autograd.Function):
    main_loss_backward_scale = torch.tensor(1.0)

    @staticmethod
    def forward(ctx, output, aux_loss):
        ctx.save_for_backward(aux_loss)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (aux_loss,) = ctx.saved_tensors
        scale = MoEAuxLossAutoScaler.main_loss_backward_scale.to(aux_loss.device)
        return grad_output, torch.ones_like(aux_loss) * scale


def switch_load_balancing_loss_func(probs, tokens_per_expert, topk, moe_aux_loss_coeff):
    num_tokens, num_experts = probs.shape
    aggregated_probs = probs.sum(dim=0)
    return torch.sum(aggregated_probs * tokens_per_expert) * (
        num_experts * moe_aux_loss_coeff / (num_tokens * num_tokens * topk)
    )


class TopKRouter(MegatronModule):
    def __init__(self, config):
        super().__init__(config=config)
        self.topk = config.moe_router_topk
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        config.init_method(self.weight)
        # summed over the TP group in finalize_model_grads
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, hidden_states):
        # [s/tp, b, h] with sequence parallelism, else [s, b, h] on each TP rank
        logits = torch.nn.functional.linear(hidden_states.view(-1, hidden_states.size(-1)), self.weight)
        probs = torch.softmax(logits, dim=-1, dtype=torch.float32)
        top_probs, top_indices = torch.topk(probs, k=self.topk, dim=-1)
        tokens_per_expert = torch.bincount(top_indices.view(-1), minlength=probs.size(-1))
        if self.training:
            coeff = self.config.moe_aux_loss_coeff
            if self.config.sequence_parallel:
                coeff = coeff / parallel_state.get_tensor_model_parallel_world_size()
            aux_loss = switch_load_balancing_loss_func(probs, tokens_per_expert, self.topk, coeff)
            top_probs = MoEAuxLossAutoScaler.apply(top_probs, aux_loss)
        return top_probs, top_indices
