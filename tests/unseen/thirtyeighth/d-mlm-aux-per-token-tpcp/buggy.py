"""Attach the load-balancing loss of a top-k router."""
# thread: NVIDIA/Megatron-LM#5047
import torch

from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region
from megatron.core.transformer.moe.moe_utils import (
    MoEAuxLossAutoScaler,
    save_to_aux_losses_tracker,
    switch_load_balancing_loss_func,
)
from megatron.core.transformer.moe.router import Router


class TopKRouter(Router):
    def __init__(self, config, pg_collection):
        super().__init__(config=config, pg_collection=pg_collection)
        self.topk = config.moe_router_topk
        self.tp_cp_group = pg_collection.tp_cp
        self.calculate_per_token_loss = config.calculate_per_token_loss

    def _apply_aux_loss(self, probs, scores_for_aux_loss, routing_map):
        """scores_for_aux_loss: [tokens of this TP x CP rank, experts]."""
        aux_loss_coeff = self.config.moe_aux_loss_coeff
        if aux_loss_coeff == 0:
            return probs
        tokens_per_expert = routing_map.sum(dim=0)
        tokens_per_expert = reduce_from_tensor_model_parallel_region(tokens_per_expert, self.tp_cp_group)
        num_local_tokens = routing_map.shape[0]
        total_num_tokens = num_local_tokens * self.tp_cp_group.size()
        aux_loss = switch_load_balancing_loss_func(
            probs=scores_for_aux_loss,
            tokens_per_expert=tokens_per_expert,
            total_num_tokens=total_num_tokens,
            topk=self.topk,
            num_experts=self.config.num_moe_experts,
            moe_aux_loss_coeff=aux_loss_coeff,
        )
        return self.attach_and_log_load_balancing_loss(
            probs, aux_loss_coeff, aux_loss, "load_balancing_loss"
        )

    def attach_and_log_load_balancing_loss(self, activation, aux_loss_coeff, aux_loss, name):
        save_to_aux_losses_tracker(
            name,
            aux_loss / aux_loss_coeff,
            self.layer_number,
            self.config.num_layers,
            reduce_group=self.tp_cp_group,
        )
        if self.calculate_per_token_loss:
            # finalize_model_grads divides every gradient by the global number of tokens;
            # undo the share of one sequence here so that the weight of the auxiliary
            # loss depends neither on sequence length nor on the parallel layout.
            num_tokens = activation.shape[0]  # BUG: local tokens, the weight shrinks by tp x cp
            activation = MoEAuxLossAutoScaler.apply(activation, aux_loss * num_tokens)
        else:
            activation = MoEAuxLossAutoScaler.apply(activation, aux_loss)
        return activation
