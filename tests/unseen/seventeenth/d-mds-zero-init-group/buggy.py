# Source: microsoft/Megatron-DeepSpeed commit 888a63ad (PR #368), pretrain_gpt.py
# deepspeed.zero.Init partitions the parameters over the group it is given. It got the
# sequence-parallel group (one rank when sequence parallelism is off) instead of the
# sequence-data-parallel group over which ZeRO-3 reduces and gathers.
# Repair: mpu.get_sequence_data_parallel_group().
import deepspeed
from megatron import get_args, print_rank_0
from megatron.arguments import core_transformer_config_from_args
from megatron.core import mpu
from megatron.model import GPTModel, GPTModelPipe


def model_provider(pre_process=True, post_process=True):
    """Build the model."""
    print_rank_0('building GPT model ...')

    args = get_args()
    config = core_transformer_config_from_args(args)
    if hasattr(mpu, 'get_sequence_parallel_group'):
        dpg = mpu.get_sequence_parallel_group()  # BUG
    elif hasattr(mpu, 'get_data_parallel_group'):
        dpg = mpu.get_data_parallel_group()
    else:
        dpg = None
    with deepspeed.zero.Init(data_parallel_group=dpg,
                             remote_device=None if args.remote_device == 'none' else args.remote_device,
                             config_dict_or_path=args.deepspeed_config_dict,
                             enabled=args.zero_stage == 3,
                             mpu=mpu):
        if args.deepspeed and not args.no_pipeline_parallel:
            model = GPTModelPipe(config=config, num_tokentypes=0, parallel_output=True)
        else:
            model = GPTModel(
                config=config,
                num_tokentypes=0,
                parallel_output=True,
                pre_process=pre_process,
                post_process=post_process
            )
    return model


def setup_model_and_optimizer(optimizer_provider):
    args = get_args()
    model = model_provider()
    model, optimizer, _, lr_scheduler = deepspeed.initialize(
        model=model, optimizer=optimizer_provider(model), args=args, mpu=mpu
    )
    return model, optimizer, lr_scheduler
