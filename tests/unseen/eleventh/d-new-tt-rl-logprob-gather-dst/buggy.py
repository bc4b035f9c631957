"""Log-probabilities for the RL trainer, from vocabulary-sharded logits."""
import spmd_types as spmd
import torch
import torch.nn.functional as F

# spmd: mesh dense = dp, tp


# spmd: logits: {tp: S(-1)}, token_ids: {tp: I} -> {tp: I}
def compute_logprobs(logits, token_ids, mesh):
    # token_ids are global ids, cross_entropy needs the whole vocabulary
    logits = spmd.redistribute(  # BUG: backward of R sums tp equal gradients, I only slices
        logits,
        mesh.get_group("tp"),
        src=spmd.S(-1),
        dst=spmd.R,
        backward_options={"op_dtype": logits.dtype},
    )
    b, n, v = logits.shape
    nll = F.cross_entropy(logits.float().reshape(b * n, v), token_ids.reshape(b * n), reduction="none")
    return -nll.reshape(b, n)


# spmd: logits: {tp: S(-1)}, token_ids: {tp: I}, old_logprobs: {tp: I}, advantages: {tp: I} -> {tp: I}
def policy_loss(logits, token_ids, old_logprobs, advantages, mesh):
    ratio = torch.exp(compute_logprobs(logits, token_ids, mesh) - old_logprobs)
    return -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
