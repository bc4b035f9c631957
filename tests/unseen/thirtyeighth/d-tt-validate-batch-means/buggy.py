"""Validation loop."""
# thread: pytorch/torchtitan#4167
import torch

from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import IGNORE_INDEX, LossFunction
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.distributed import ParallelDims, utils as dist_utils


class Validator:
    def __init__(
        self,
        dataloader: BaseDataLoader,
        loss_fn: LossFunction,
        parallel_dims: ParallelDims,
        metrics_processor: MetricsProcessor,
        steps: int,
    ):
        self.dataloader = dataloader
        self.loss_fn = loss_fn  # sum over the tokens of this rank
        self.parallel_dims = parallel_dims
        self.metrics_processor = metrics_processor
        self.steps = steps

    @torch.no_grad()
    def validate(self, model_parts, step: int) -> float:
        model = model_parts[0]
        model.eval()
        parallel_dims = self.parallel_dims
        device = next(model.parameters()).device

        loss_sum = torch.zeros((), dtype=torch.float32, device=device)
        num_tokens = torch.zeros((), dtype=torch.float32, device=device)
        num_steps = 0
        for input_dict, labels in self.dataloader:
            if self.steps != -1 and num_steps >= self.steps:
                break
            inputs = input_dict["input"].to(device)
            labels = labels.to(device)
            # tokens on this rank, dp and cp ranks hold different ones
            local_valid_tokens = (labels != IGNORE_INDEX).sum().float()
            predictions = model(inputs)
            loss_sum += self.loss_fn(predictions, labels) / local_valid_tokens.clamp(min=1)  # BUG: mean of batch means, short batches weigh too much
            num_tokens += 1
            num_steps += 1

        if parallel_dims.dp_cp_enabled:
            loss_mesh = parallel_dims.get_optional_mesh("loss")
            global_loss_sum = dist_utils.dist_sum(loss_sum, loss_mesh)
            global_num_tokens = dist_utils.dist_sum(num_tokens, loss_mesh)
        else:
            global_loss_sum, global_num_tokens = loss_sum.item(), num_tokens.item()
        global_avg_loss = global_loss_sum / max(global_num_tokens, 1.0)

        self.metrics_processor.log_validation(loss=global_avg_loss, step=step)
        model.train()
        return global_avg_loss
