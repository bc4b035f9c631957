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
            lm = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
            reg = (logits.logsumexp(-1) ** 2 * batch["mask"]).sum() / batch["mask"].sum()
            loss = lm + 1e-4 * reg
            loss = loss / args.accum
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
