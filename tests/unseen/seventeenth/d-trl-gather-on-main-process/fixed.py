# Source: huggingface/trl commit ec3d41b87 (PR #1177), trl/trainer/ppo_trainer.py (log_stats)
# gather_object is a collective over all processes, but it is called inside the branch of the main
# process: the main process waits for the others for ever.
# Repair: gather before the branch.
from typing import Any, List

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object


class PPOTrainer:
    def __init__(self, config):
        self.config = config
        self.accelerator = Accelerator(log_with=config.log_with)
        self.current_device = self.accelerator.device
        self.is_distributed = self.accelerator.num_processes > 1

    def log_stats(
        self,
        stats: dict,
        batch: dict,
        rewards: List[torch.FloatTensor],
        columns_to_log: List[str] = ["query", "response"],
    ):
        """Log the training stats. Called by all processes after each step."""
        if not isinstance(rewards, torch.Tensor):
            rewards = torch.tensor(rewards).to(self.current_device)
        rewards = self.accelerator.gather(rewards).flatten()

        if self.config.log_with == "wandb":
            batch_list = [batch[column_to_log] for column_to_log in columns_to_log]
            if self.is_distributed:
                gathered_batch_list = []
                for b in batch_list:
                    flattened = gather_object(b)
                    gathered_batch_list.append(flattened)
                batch_list = gathered_batch_list

        # Log only if we are in the main process
        if self.accelerator.is_main_process:
            logs: dict[str, Any] = {}

            if self.config.log_with == "wandb":
                import wandb

                table_rows = [list(r) for r in zip(*batch_list, rewards.cpu().tolist())]
                logs.update({"game_log": wandb.Table(columns=[*columns_to_log, "reward"], rows=table_rows)})

            logs.update(stats)
            logs["env/reward_mean"] = torch.mean(rewards).cpu().numpy().item()
            logs["env/reward_std"] = torch.std(rewards).cpu().numpy().item()
            logs["env/reward_dist"] = rewards.cpu().numpy()
            for k, v in logs.items():
                if isinstance(v, np.ndarray) and v.ndim == 0:
                    logs[k] = v.item()
            self.accelerator.log(logs)
