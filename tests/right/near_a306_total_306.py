from accelerate import Accelerator
from accelerate.utils import gather


def first(accelerator: Accelerator, rewards, prompts):
    every = gather(rewards)
    n = len(prompts) * accelerator.num_processes
    process_slice = slice(0, n)
    return every[process_slice].mean()
