"""SFT loss and the FSDP engine that runs it."""
# thread: verl-project/verl#3994
import torch
import torch.distributed as dist
from tensordict import TensorDict
from torch.distributed.fsdp import fully_shard

from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id


def masked_sum(values, mask):
    return (torch.where(mask.bool(), values, torch.zeros_like(values)) * mask).sum()


def sft_loss(model_output, data: TensorDict):
    log_prob = model_output["log_probs"].values()
    loss_mask = data["loss_mask"].values()
    loss = -masked_sum(log_prob, loss_mask) / loss_mask.sum().clamp(min=1)  # BUG: own token count per micro-batch and rank, then summed over micro-batches
    return loss, {"loss": loss.detach().item()}


class FSDPEngineWithLMHead:
    def __init__(self, module, optimizer, device_mesh):
        self.device_mesh = device_mesh
        for layer in module.model.layers:
            fully_shard(layer, mesh=device_mesh["fsdp"])
        self.module = fully_shard(module, mesh=device_mesh["fsdp"])
        self.optimizer = optimizer

    def get_data_parallel_group(self):
        return self.device_mesh["fsdp"].get_group()

    def get_data_parallel_size(self):
        return self.device_mesh["fsdp"].size()

    def forward_step(self, micro_batch, loss_function):
        logits = self.module(input_ids=micro_batch["input_ids"], use_cache=False).logits
        log_probs = torch.log_softmax(logits.values().float(), dim=-1)
        labels = micro_batch["labels"].values()
        log_probs = log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        nested = torch.nested.nested_tensor_from_jagged(log_probs, micro_batch["input_ids"].offsets())
        return loss_function({"log_probs": nested}, micro_batch)

    def train_batch(self, data: TensorDict, micro_batch_size: int, loss_function=sft_loss):
        batch_num_tokens = data["loss_mask"].sum().to(get_device_id())
        dist.all_reduce(batch_num_tokens, op=dist.ReduceOp.SUM, group=self.get_data_parallel_group())
        tu.assign_non_tensor(data, batch_num_tokens=batch_num_tokens.item())
        tu.assign_non_tensor(data, dp_size=self.get_data_parallel_size())

        self.optimizer.zero_grad()
        metrics = []
        for micro_batch in tu.split_by_size(data, micro_batch_size):
            loss, m = self.forward_step(micro_batch, loss_function)
            loss.backward()
            metrics.append(m)
        grad_norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), max_norm=1.0)
        self.optimizer.step()
        return {"loss": sum(m["loss"] for m in metrics), "grad_norm": grad_norm}
