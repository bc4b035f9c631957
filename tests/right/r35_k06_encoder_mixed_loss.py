import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForMaskedLM


def train(loader):
    accelerator = Accelerator()
    encoder = AutoModelForMaskedLM.from_pretrained("bert-base-uncased")
    probe = torch.nn.Linear(30522, 2).to(accelerator.device)
    enc_opt = torch.optim.AdamW(encoder.parameters())
    probe_opt = torch.optim.AdamW(probe.parameters())
    encoder, enc_opt, loader = accelerator.prepare(encoder, enc_opt, loader)
    for batch in loader:
        logits = encoder(batch["input_ids"]).logits
        mlm = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        n = accelerator.reduce((batch["cls"] >= 0).sum(), "sum")
        probe_loss = F.cross_entropy(probe(logits[:, 0].detach()), batch["cls"], reduction="sum") / n
        accelerator.backward(mlm)
        probe_loss.backward()
        for p in probe.parameters():
            dist.all_reduce(p.grad)
        enc_opt.step()
        probe_opt.step()
        enc_opt.zero_grad()
        probe_opt.zero_grad()
