"""SFT trainer: a batch is split into micro-batches whose losses are means."""
# verl SFT / torchtitan: the losses of the micro-batches have to be divided by their number, or the gradient grows with it.
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class FSDPSFTTrainer:
    def __init__(self, config, model, optimizer, lr_scheduler):
        self.config = config
        self.device_mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
        self.fsdp_model = FSDP(model, device_mesh=self.device_mesh, use_orig_params=False)
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler

    def _compute_loss(self, batch):
        labels = batch["input_ids"][:, 1:].contiguous()
        loss_mask = batch["loss_mask"][:, :-1].reshape(-1)
        output = self.fsdp_model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        shift_logits = output.logits[..., :-1, :].contiguous()
        loss = torch.nn.functional.cross_entropy(
            shift_logits.view(-1, shift_logits.size(-1)), labels.view(-1), reduction="none"
        )
        return (loss * loss_mask).sum() / (loss_mask.sum() + 1e-8)

    def training_step(self, batch):
        self.fsdp_model.train()
        self.optimizer.zero_grad()
        micro_batches = batch.split(self.config.data.micro_batch_size_per_gpu)
        n_micro_batches = len(micro_batches)
        step_loss = 0.0
        for micro_batch in micro_batches:
            loss = self._compute_loss(batch=micro_batch)
            step_loss += loss.item() / n_micro_batches
            loss.backward()  # BUG: the reported loss is the mean of the micro-batches, the gradient their sum
        grad_norm = self.fsdp_model.clip_grad_norm_(max_norm=self.config.optim.clip_grad)
        self.optimizer.step()
        self.lr_scheduler.step()
        step_loss = torch.tensor(step_loss).cuda()
        dist.all_reduce(step_loss, op=dist.ReduceOp.AVG)
        return {"train/loss": step_loss.item(), "train/grad_norm": grad_norm.item()}
