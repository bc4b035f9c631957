"""Full recompute of a multi-token prediction layer on an explicit TP group (NVIDIA/Megatron-LM#7452)."""
from megatron.core import parallel_state, tensor_parallel
from megatron.core.extensions.transformer_engine import te_checkpoint
from megatron.core.transformer.module import MegatronModule


class MultiTokenPredictionLayer(MegatronModule):
    def __init__(self, config, eh_proj, transformer_layer, pg_collection):
        super().__init__(config=config)
        self.eh_proj, self.transformer_layer = eh_proj, transformer_layer
        self.tp_group = pg_collection.tp

    def _forward(self, hidden_states):
        hidden_states, _ = self.eh_proj(hidden_states)
        return self.transformer_layer(hidden_states, tp_group=self.tp_group)

    def _checkpointed_forward(self, hidden_states):
        # with distribute_saved_activations the input is split and gathered over the given group
        return te_checkpoint(
            self._forward,
            self.config.distribute_saved_activations,
            tensor_parallel.random.get_cuda_rng_tracker,
            parallel_state.get_tensor_model_parallel_group(),  # BUG: not the group of this layer
            hidden_states,
        )
