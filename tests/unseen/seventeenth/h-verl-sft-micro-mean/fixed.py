# Source: volcengine/verl commit b49178f0f (PR #3994), workers/engine/fsdp/transformer_impl.py, losses.py
# Each micro batch is averaged over its own tokens and weighted by its number of samples, so
# tokens of short micro batches weigh more than tokens of long ones, on each rank differently.
# Repair: sum the token losses and divide by the token count of the global batch over the
# data-parallel group, times dp_size because FSDP averages.
import torch
from tensordict import TensorDict

from verl.utils import tensordict_utils as tu
from verl.utils.torch_functional import masked_sum
from verl.workers.engine.base import BaseEngine
from verl.workers.engine.utils import prepare_micro_batches


def sft_loss(config, model_output, data: TensorDict, dp_group=None):
    log_prob = model_output["log_probs"]
    response_mask = data["response_mask"].to(bool)
    loss = -masked_sum(log_prob, response_mask) / data["batch_num_tokens"] * data["dp_size"]
    return loss, {"loss": loss.detach().item()}


class FSDPEngine(BaseEngine):
    """The module is wrapped by FSDP; gradients are averaged over the data-parallel group."""

    def get_data_parallel_group(self):
        return torch.distributed.group.WORLD

    def get_data_parallel_size(self):
        return torch.distributed.get_world_size()

    def forward_backward_batch(self, data: TensorDict, loss_function, forward_only=False):
        batch_num_tokens = data["response_mask"].sum().to(self.device)
        torch.distributed.all_reduce(
            batch_num_tokens, op=torch.distributed.ReduceOp.SUM, group=self.get_data_parallel_group()
        )
        tu.assign_non_tensor(data, batch_num_tokens=batch_num_tokens.item())
        tu.assign_non_tensor(data, dp_size=self.get_data_parallel_size())
        # packed by length: micro batches differ in samples and in tokens
        micro_batches, indices = prepare_micro_batches(
            data=data, dp_group=self.get_data_parallel_group(), same_micro_num_in_dp=True
        )
        output_lst = []
        for micro_batch in micro_batches:
            loss, meta_info = self.forward_step(micro_batch, loss_function=loss_function, forward_only=forward_only)
            if not forward_only:
                loss.backward()
            output_lst.append(meta_info)
        return output_lst, indices
