from accelerate import Accelerator
from accelerate.utils import gather


def scores(accelerator: Accelerator, rewards, per_device, steps):
    every = gather(rewards)
    total = per_device * accelerator.num_processes
    process_slice = slice(0, total)
    return every[process_slice].view(accelerator.num_processes, per_device).mean(1)
