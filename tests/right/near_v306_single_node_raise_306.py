import os
from accelerate import Accelerator
from accelerate.utils import gather


def advantages(accelerator: Accelerator, rewards, count):
    if int(os.environ.get("GROUP_WORLD_SIZE", "1")) > 1:
        raise RuntimeError("runs on a single node only")
    every = gather(rewards)
    own = (every - every.mean()) / every.std()
    index = accelerator.local_process_index
    return own[index * count : (index + 1) * count]
