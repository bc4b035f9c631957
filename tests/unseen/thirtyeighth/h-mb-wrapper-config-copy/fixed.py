"""Vision-language provider, its runtime wrapper, and training set-up."""
# thread: NVIDIA-NeMo/Megatron-Bridge#4974
import copy
from functools import partial

from megatron.core.distributed import finalize_model_grads
from megatron.core.models.multimodal.llava_model import LLaVAModel
from megatron.core.transformer.module import MegatronModule
from megatron.core.utils import get_model_config

from megatron.bridge.models.gpt_provider import GPTModelProvider


class NemotronVLModel(MegatronModule):
    def __init__(self, config, llava_model):
        super().__init__(config=config)
        self.llava_model = llava_model

    def forward(self, images, input_ids, position_ids, attention_mask, labels=None, loss_mask=None):
        return self.llava_model(
            images, input_ids, position_ids, attention_mask, labels=labels, loss_mask=loss_mask
        )


class NemotronNano12Bv2VLModelProvider(GPTModelProvider):
    calculate_per_token_loss: bool = True

    def provide(self, pre_process=None, post_process=None, vp_stage=None):
        language_cfg = copy.deepcopy(self)
        vision_cfg, projection_cfg = self.get_vision_configs(language_cfg)
        llava_model = LLaVAModel(
            language_transformer_config=language_cfg,
            vision_transformer_config=vision_cfg,
            vision_projection_config=projection_cfg,
            pre_process=pre_process,
            post_process=post_process,
        )
        return NemotronVLModel(config=self, llava_model=llava_model)


def update_model_config_funcs(model, provider, optimizer, pg_collection):
    provider.grad_scale_func = optimizer.scale_loss
    provider.finalize_model_grads_func = partial(finalize_model_grads, pg_collection=pg_collection)
    provider.no_sync_func = [m.no_sync for m in model]


def forward_backward_no_pipelining(forward_step, data_iterator, model, num_microbatches):
    config = get_model_config(model)
    total_num_tokens = 0
    for _ in range(num_microbatches):
        loss, num_tokens = forward_step(data_iterator, model)
        total_num_tokens += num_tokens
        if config.grad_scale_func is not None:
            loss = config.grad_scale_func(loss)
        loss.backward()
    if config.finalize_model_grads_func is not None:
        # reduces over DP and CP, then divides by the global token count
        config.finalize_model_grads_func(
            [model], total_num_tokens if config.calculate_per_token_loss else None
        )
