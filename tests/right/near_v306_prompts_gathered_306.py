from accelerate import Accelerator
from accelerate.utils import gather, gather_object


def table(accelerator: Accelerator, prompts, rewards):
    every = gather(rewards)
    prompts = gather_object(prompts)
    process_slice = slice(0, len(prompts))
    return list(zip(prompts, every[process_slice].tolist()))
