import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModelForCausalLM


def train(args, get_batch, device):
    model = DDP(AutoModelForCausalLM.from_pretrained(args.model).to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(args.steps):
        for micro in range(args.accum):
            batch = get_batch()
            model_out = model(batch["input_ids"])
            logits = model_out.logits
            loss, count = 0.0, 0
            for l, y in zip(logits, batch["labels"]):
                loss = loss + F.cross_entropy(l, y, reduction="sum")
                count += (y != -100).sum()
            loss = loss / count
            loss = loss / args.accum
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
