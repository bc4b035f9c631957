"""MoE router: attach the load-balancing loss to the activations.

After NVIDIA/Megatron-LM PR #5047 (megatron/core/transformer/moe/router.py).
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class MoEAuxLossAutoScaler(torch.autograd.Function):
    main_loss_backward_scale = 1.0

    @staticmethod
    def forward(ctx, output, aux_loss):
        ctx.save_for_backward(aux_loss)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (aux_loss,) = ctx.saved_tensors
        return grad_output, torch.ones_like(aux_loss) * MoEAuxLossAutoScaler.main_loss_backward_scale


class TopKRouter(torch.nn.Module):
    def __init__(self, config, tp_cp_group):
        super().__init__()
        self.config, self.tp_cp_group = config, tp_cp_group
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        torch.nn.init.normal_(self.weight, std=config.init_method_std)
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def _aux_loss(self, probs, routing_map):
        cfg = self.config
        tokens_per_expert = routing_map.sum(dim=0).float()
        dist.all_reduce(tokens_per_expert, group=self.tp_cp_group)
        total = probs.size(0) * self.tp_cp_group.size()
        # this rank's share; shares of the tensor and context ranks add up to the loss
        share = torch.sum(probs.sum(dim=0) * tokens_per_expert)
        return share * cfg.num_moe_experts * cfg.moe_aux_loss_coeff / (total * total * cfg.moe_router_topk)

    def forward(self, hidden):
        # hidden: [tokens, h], sharded over TP (sequence parallelism) and CP
        logits = F.linear(hidden, self.weight)
        probs = torch.softmax(logits.float(), dim=-1)
        top_probs, top_idx = probs.topk(self.config.moe_router_topk, dim=-1)
        routing_map = torch.zeros_like(probs, dtype=torch.bool).scatter(1, top_idx, True)
        aux_loss = self._aux_loss(probs, routing_map)
        if self.config.calculate_per_token_loss:
            # gradients will be divided by the number of tokens of the global batch
            num_tokens = hidden.size(0)
            aux_loss = aux_loss * num_tokens  # BUG: hidden holds 1/(tp*cp) of the tokens of a sample
        top_probs = MoEAuxLossAutoScaler.apply(top_probs, aux_loss)
        return top_probs, top_idx


def set_aux_loss_scale(config, cp_size, num_microbatches):
    scale = 1.0 if config.calculate_per_token_loss else cp_size / num_microbatches
    MoEAuxLossAutoScaler.main_loss_backward_scale = scale


def finalize_model_grads(model, config, tp_group, dp_cp_group, total_num_tokens):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            dist.all_reduce(p.main_grad, group=tp_group)
        dist.all_reduce(p.main_grad, group=dp_cp_group)
        if config.calculate_per_token_loss:
            p.main_grad.div_(total_num_tokens)
        else:
            p.main_grad.div_(dp_cp_group.size())
