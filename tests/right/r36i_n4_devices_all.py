# RIGHT: the caller's `devices` is the number of all devices: main multiplies with the nodes before it hands it on.
from dataclasses import dataclass


@dataclass
class TrainArgs:
    global_batch_size: int = 512
    micro_batch_size: int = 4

    def gradient_accumulation_iters(self, devices: int, num_nodes: int = 1) -> int:
        return self.global_batch_size // (devices * num_nodes) // self.micro_batch_size


def fit(fabric, model, optimizer, loader, devices, num_nodes, train: TrainArgs):
    accumulation = train.gradient_accumulation_iters(devices)
    for i, batch in enumerate(loader):
        fabric.backward(model(batch) / accumulation)
        if (i + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()


def main(fabric, model, optimizer, loader, gpus_per_node, num_nodes):
    fit(fabric, model, optimizer, loader, gpus_per_node * num_nodes, num_nodes, TrainArgs())
