from accelerate import Accelerator
from accelerate.utils import gather


def log(accelerator: Accelerator, rewards, prompts):
    every = gather(rewards)
    process_slice = slice(0, len(prompts))
    if accelerator.process_index == 0:
        for p, r in zip(prompts, every[process_slice].tolist()):
            print(p, r)
