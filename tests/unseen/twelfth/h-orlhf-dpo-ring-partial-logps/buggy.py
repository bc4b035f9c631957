"""DPO step with ring attention; the engine averages gradients over all ranks."""
import torch
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F


def global_token_count(batch, ring_attn_group):
    with torch.no_grad():
        return dist_nn.all_reduce(batch["loss_mask"].sum(), group=ring_attn_group)


def sequence_logps(model, batch, ring_attn_group):
    # input_ids, labels, loss_mask: this ring rank's slice of each sequence, labels already shifted
    logits = model(batch["input_ids"], ring_attn_group=ring_attn_group)
    token_logps = torch.gather(logits.log_softmax(-1), -1, batch["labels"].unsqueeze(-1)).squeeze(-1)
    return (token_logps * batch["loss_mask"]).sum(dim=-1)  # BUG: part of the sequence, goes into logsigmoid


def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
    logits = (policy_chosen - policy_rejected) - (ref_chosen - ref_rejected)
    return -F.logsigmoid(beta * logits).mean()


def train_step(engine, ref_model, chosen, rejected, ring_attn_group, beta=0.1):
    policy = [sequence_logps(engine, b, ring_attn_group) for b in (chosen, rejected)]
    with torch.no_grad():
        reference = [sequence_logps(ref_model, b, ring_attn_group) for b in (chosen, rejected)]
    loss = dpo_loss(*policy, *reference, beta)
    engine.backward(loss)
    engine.step()
    return loss.detach(), global_token_count(chosen, ring_attn_group)
