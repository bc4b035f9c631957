import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def tune(loader, length):
    """Prompt tuning: the language model is wrapped for its shards alone; the prompt is reduced by hand."""
    accelerator = Accelerator()
    lm = AutoModelForCausalLM.from_pretrained("llama").requires_grad_(False)
    prompt = torch.nn.Parameter(torch.randn(length, 4096, device=accelerator.device))
    optimizer = torch.optim.AdamW([prompt], lr=1e-2)
    lm, loader = accelerator.prepare(lm, loader)
    for batch in loader:
        embeds = torch.cat([prompt.expand(len(batch["ids"]), -1, -1), batch["embeds"]], dim=1)
        logits = lm(inputs_embeds=embeds).logits[:, length:]
        n = accelerator.reduce((batch["labels"] != -100).sum(), "sum")
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum") / n
        loss.backward()
        dist.all_reduce(prompt.grad)
        optimizer.step()
        optimizer.zero_grad()
