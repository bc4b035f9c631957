# DPO loss on packed chosen/rejected sequences that are split over a ring-attention group.
import torch
import torch.distributed as dist
import torch.nn.functional as F


def packed_logps(logits, labels, loss_mask, seq_ids, num_seqs):
    """logits, labels: this ring rank's slice of the packed row; seq_ids: sequence of every token."""
    logps = torch.gather(logits.log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2)
    logps = (logps * loss_mask).flatten()
    return logps.new_zeros(num_seqs).index_add(0, seq_ids.flatten(), logps)


class DPOTrainer:
    def __init__(self, model, ref_model, strategy, beta):
        self.model, self.ref_model, self.strategy, self.beta = model, ref_model, strategy, beta
        self.ring_group = strategy.ring_attn_group

    def local_slice(self, t):
        world, rank = dist.get_world_size(self.ring_group), dist.get_rank(self.ring_group)
        return t.chunk(world, dim=1)[rank]

    def step(self, batch):
        ids, labels, mask, seq_ids = (self.local_slice(batch[k]) for k in ("ids", "labels", "mask", "seq_ids"))
        n = batch["num_seqs"]
        policy = packed_logps(self.model(ids), labels, mask, seq_ids, n)
        with torch.no_grad():
            ref = packed_logps(self.ref_model(ids), labels, mask, seq_ids, n)
        chosen, rejected = (policy - ref).chunk(2)
        loss = -F.logsigmoid(self.beta * (chosen - rejected)).mean()  # BUG
        # the engine averages gradients over data-parallel and ring ranks
        self.strategy.backward(loss, self.model)
        return loss.detach()
