# Reduced from transformers Trainer (issue 39648, read): average_tokens_across_devices with
# accelerate's composable parallelism (dp x tp mesh).
# FSDP averages gradients over the "dp" mesh only, and the token count is summed over "dp".
# What happens: loss and gradient are too large by the tensor-parallel degree.
import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, model, args, accelerator, optimizer):
        self.model, self.args, self.accelerator, self.optimizer = model, args, accelerator, optimizer
        # ("dp", "tp") device mesh built by accelerate's ParallelismConfig
        self.dp_mesh = accelerator.torch_device_mesh["dp"]

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batch_samples = [next(epoch_iterator) for _ in range(num_batches)]
        num_items_in_batch = sum((batch["labels"].ne(-100)).sum() for batch in batch_samples).to(device)
        if self.args.average_tokens_across_devices:
            dist.all_reduce(num_items_in_batch, group=self.dp_mesh.get_group())
        return batch_samples, num_items_in_batch

    def compute_loss(self, model, inputs, num_items_in_batch=None):
        # the model sums the token losses and divides by num_items_in_batch
        outputs = model(**inputs, num_items_in_batch=num_items_in_batch)
        loss = outputs.loss
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * self.dp_mesh.size()
        return loss

    def inner_training_step(self, epoch_iterator):
        batch_samples, num_items = self.get_batch_samples(
            epoch_iterator, self.args.gradient_accumulation_steps, self.args.device
        )
        for inputs in batch_samples:
            loss = self.compute_loss(self.model, inputs, num_items_in_batch=num_items)
            self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
