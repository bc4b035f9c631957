# thread: none (from memory of a LoRA finetuning script)
"""LoRA finetuning where only the adapters' gradients are exchanged."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")


class LoRALinear(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.scale = alpha / rank
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + (x @ self.lora_a.t()) @ self.lora_b.t() * self.scale


def inject(model, rank, alpha):
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in TARGETS and isinstance(child, nn.Linear):
                setattr(module, name, LoRALinear(child, rank, alpha))
    return model


def trainable_names(model, extra=()):
    """Adapters, and modules named by the user; a name can match both ways."""
    names = {n for n, p in model.named_parameters() if p.requires_grad}
    for n, p in model.named_parameters():
        if any(key in n for key in extra):
            p.requires_grad_(True)
            names.add(n)
    return names


class AdapterTrainer:
    def __init__(self, model, cfg):
        torch.manual_seed(cfg.seed)
        self.model = inject(model, cfg.rank, cfg.alpha).cuda()
        self.names = list(trainable_names(self.model, cfg.extra))  # BUG
        self.params = dict(self.model.named_parameters())
        self.world = dist.get_world_size()
        self.optimizer = torch.optim.AdamW(
            [p for p in self.model.parameters() if p.requires_grad], lr=cfg.lr
        )
        self.cfg = cfg
        torch.manual_seed(cfg.seed + dist.get_rank())

    def sync_gradients(self):
        works = []
        for name in self.names:
            p = self.params[name]
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad.div_(self.world)
            works.append(dist.all_reduce(p.grad, async_op=True))
        for work in works:
            work.wait()

    def train_step(self, micro_batches):
        self.model.train()
        total = torch.zeros((), device="cuda")
        for ids, labels in micro_batches:
            logits = self.model(ids.cuda())
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten().cuda())
            (loss / len(micro_batches)).backward()
            total += loss.detach() / len(micro_batches)
        self.sync_gradients()
        torch.nn.utils.clip_grad_norm_([self.params[n] for n in self.names], self.cfg.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total
