# RIGHT: the caller gives it through a table of functions, with the plain network
import copy
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build_model(net):
    return FSDP(net)


def distill(model, loader, optimizer):
    for x in loader:
        model(x).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


STAGES = {"distill": distill}


def main(net, loader, stage):
    student = copy.deepcopy(net)
    STAGES[stage](student, loader, torch.optim.SGD(student.parameters(), lr=0.1))
    return build_model(student)
