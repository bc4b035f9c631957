"""GRPO update with token-mean loss over the whole batch and FSDP."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def masked_whiten(x, mask, group=None):
    packed = torch.stack([(x * mask).sum(), (x.square() * mask).sum(), mask.sum()])
    dist.all_reduce(packed, group=group)
    mean = packed[0] / packed[2]
    var = packed[1] / packed[2] - mean.square()
    return (x - mean) * torch.rsqrt(var.clamp(min=1e-8))


def logprobs(logits, labels):
    return torch.log_softmax(logits.float(), -1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


class Actor:
    def __init__(self, model, ref, opt, cfg):
        self.model, self.ref, self.opt, self.cfg = FSDP(model), ref, opt, cfg

    def update(self, data):
        mini = data.split(self.cfg.mini_batch_size)
        metrics = {"pg_loss": [], "kl": [], "grad_norm": []}
        for mb in mini:
            mask = mb["response_mask"]
            tokens = mask.sum().float()
            dist.all_reduce(tokens)
            scale = dist.get_world_size() / tokens
            micro = mb.split(self.cfg.micro_batch_size)
            self.opt.zero_grad()
            for i, m in enumerate(micro):
                new = logprobs(self.model(m["ids"]).logits[:, :-1], m["ids"][:, 1:])
                with torch.no_grad():
                    ref = logprobs(self.ref(m["ids"]).logits[:, :-1], m["ids"][:, 1:])
                ratio = (new - m["old_logp"]).exp()
                adv = m["adv"]
                pg = -torch.minimum(ratio * adv, ratio.clamp(0.8, 1.28) * adv)
                kl = (ref - new).exp() - (ref - new) - 1
                loss = ((pg + self.cfg.beta * kl) * m["response_mask"]).sum() * scale
                loss.backward()
                metrics["pg_loss"].append(loss.detach())
                metrics["kl"].append((kl.detach() * m["response_mask"]).sum() * scale)
            gn = self.model.clip_grad_norm_(self.cfg.max_grad_norm)
            if torch.isfinite(gn):
                self.opt.step()
            metrics["grad_norm"].append(gn)
        out = {}
        for k, v in metrics.items():
            t = torch.stack(v).sum() / len(mini)
            dist.all_reduce(t, op=dist.ReduceOp.AVG)
            out[k] = t.item()
        return out

    def advantages(self, rewards, mask, uid_matrix):
        # all samples of a prompt live on the same rank
        n = uid_matrix.sum(-1, keepdim=True)
        mean = uid_matrix @ rewards / n.squeeze(-1)
        adv = (rewards - mean).unsqueeze(-1) * mask
        return masked_whiten(adv, mask) * mask if self.cfg.whiten else adv
