"""Loss of one cp rank divided by the tokens of its sequence, times cp, under a mean over dp and cp."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def cut(batch, cp_group):
    n, r = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    out = {}
    for key, value in batch.items():
        chunks = value.chunk(2 * n, dim=1)
        out[key] = torch.cat([chunks[r], chunks[2 * n - r - 1]], dim=1)
    return out


def sequence_mean(logits, labels, cp_group):
    nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)
    stats = torch.stack([nll.detach(), (labels != -100).sum().float()])
    dist.all_reduce(stats, group=cp_group)
    return nll * dist.get_world_size(cp_group) / stats[1], stats[0] / stats[1]


def train(net, loader, dp_cp_group, dp_group, cp_group):
    model = DDP(net, process_group=dp_cp_group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step, batch in enumerate(loader):
        batch = cut(batch, cp_group)
        logits = model(batch["tokens"], batch["position_ids"])
        loss, shown = sequence_mean(logits, batch["labels"], cp_group)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            dist.all_reduce(shown, op=dist.ReduceOp.AVG, group=dp_group)
            print(step, shown.item())
