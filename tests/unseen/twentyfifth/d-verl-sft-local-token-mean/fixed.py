# verl b49178f0f (PR #3994): every micro-batch is averaged over its own tokens and weighted by its number of
# sequences; tokens do not weigh the same across micro-batches and data-parallel ranks.
import torch
import torch.distributed
from tensordict import TensorDict

from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.utils.device import get_device_id
from verl.utils.torch_functional import masked_sum
from verl.workers.engine.utils import prepare_micro_batches


def sft_loss(model_output, loss_mask, batch_num_tokens, dp_size):
    """FSDP averages the gradients over data parallelism."""
    log_prob = model_output["log_probs"]
    return -masked_sum(log_prob, loss_mask) / batch_num_tokens * dp_size


class FSDPEngine:
    pad_mode = DatasetPadMode.NO_PADDING

    def get_data_parallel_group(self):
        return self.device_mesh.get_group("dp")

    def get_data_parallel_size(self):
        return self.device_mesh.size(0)

    def forward_backward_batch(self, data: TensorDict):
        batch_num_tokens = data["loss_mask"].sum().to(get_device_id())
        torch.distributed.all_reduce(
            batch_num_tokens, op=torch.distributed.ReduceOp.SUM, group=self.get_data_parallel_group()
        )
        micro_batches, _ = prepare_micro_batches(
            data=data, dp_group=self.get_data_parallel_group(), same_micro_num_in_dp=True
        )

        total_loss = 0.0
        for micro_batch in micro_batches:
            model_output = self.forward_step(micro_batch)
            loss = sft_loss(
                model_output, micro_batch["loss_mask"], batch_num_tokens, self.get_data_parallel_size()
            )
            loss.backward()
            total_loss += loss.detach()
        return total_loss
