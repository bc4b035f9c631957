import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def train(loader):
    accelerator = Accelerator()
    teacher = AutoModelForCausalLM.from_pretrained("gpt2-xl").eval()
    student = AutoModelForCausalLM.from_pretrained("gpt2").to(accelerator.device)
    optimizer = torch.optim.AdamW(student.parameters())
    teacher, optimizer, loader = accelerator.prepare(teacher, optimizer, loader)
    for batch in loader:
        with torch.no_grad():
            t = teacher(batch["input_ids"]).logits.softmax(-1)
        s = student(batch["input_ids"]).logits.log_softmax(-1)
        mask = batch["attention_mask"]
        loss = (F.kl_div(s, t, reduction="none").sum(-1) * mask).sum()
        total = accelerator.reduce(mask.sum(), "sum")
        loss = loss / total
        loss.backward()
        for p in student.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
