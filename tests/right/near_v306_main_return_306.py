from accelerate import Accelerator
from accelerate.utils import gather


def log(accelerator: Accelerator, rewards, prompts, writer):
    every = gather(rewards)
    if not accelerator.is_main_process:
        return
    process_slice = slice(0, len(prompts))
    for p, r in zip(prompts, every[process_slice].tolist()):
        writer.write(f"{p}\t{r}\n")
