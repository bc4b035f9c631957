# Reduces SFT with Ulysses sequence parallelism (verl, ms-swift): each rank takes the mean over the valid tokens of
# its own slice, although the slices hold different numbers of valid tokens (prompts, padding).
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sequence_slice(x, sp_group):
    return x.chunk(dist.get_world_size(sp_group), dim=1)[dist.get_rank(sp_group)]


class UlyssesSFTTrainer:
    def __init__(self, model, dp_size, sp_size, lr):
        self.mesh = init_device_mesh("cuda", (dp_size, sp_size), mesh_dim_names=("dp", "sp"))
        self.sp_group = self.mesh["sp"].get_group()
        self.sp_size = sp_size
        self.model = FSDP(model, device_id=torch.cuda.current_device())  # over all dp * sp ranks
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)

    def compute_loss(self, batch):
        input_ids = sequence_slice(batch["input_ids"], self.sp_group)
        position_ids = sequence_slice(batch["position_ids"], self.sp_group)
        labels = sequence_slice(batch["shifted_labels"], self.sp_group)
        mask = sequence_slice(batch["loss_mask"], self.sp_group).reshape(-1).float()
        logits = self.model(input_ids=input_ids, position_ids=position_ids).logits
        token_loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.reshape(-1), reduction="none")
        valid = mask.sum()
        dist.all_reduce(valid, group=self.sp_group)
        return (token_loss * mask).sum() / valid.clamp(min=1) * self.sp_size

    def training_step(self, batch):
        self.optimizer.zero_grad()
        loss = self.compute_loss(batch)
        loss.backward()
        self.model.clip_grad_norm_(1.0)
        self.optimizer.step()
        return loss.detach()
