import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def train(args, loader):
    accelerator = Accelerator(gradient_accumulation_steps=args.accum)
    teacher = AutoModelForCausalLM.from_pretrained(args.teacher).eval()
    student = AutoModelForCausalLM.from_pretrained(args.student)
    optimizer = torch.optim.AdamW(student.parameters())
    student, teacher, optimizer, loader = accelerator.prepare(student, teacher, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(student):
            with torch.no_grad():
                t = teacher(batch["ids"]).logits.softmax(-1)
            s = student(batch["ids"]).logits.log_softmax(-1)
            mask = batch["mask"]
            loss = -((t * s).sum(-1) * mask).sum() / mask.sum()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
