from accelerate import Accelerator
from accelerate.utils import gather


def own_of_node(accelerator: Accelerator, x, gpus_per_node, count):
    every = gather(x)
    node = accelerator.process_index // gpus_per_node
    base = node * gpus_per_node * count
    index = accelerator.local_process_index
    return every[base + index * count : base + (index + 1) * count]
