"""Callback that saves a monolithic checkpoint of an FSDP model.

mosaicml/examples 2d849a822ad7, examples/common/monolithic_chkpt_callback.py
"""
import os
from pathlib import Path

import torch
from composer import Callback, State
from composer.core.state import fsdp_state_dict_type_context
from composer.loggers import Logger
from composer.utils import dist, format_name_with_dist_and_time, parse_uri


class MonolithicCheckpointSaver(Callback):
    """Save the full state dict every `batch_interval` batches.

    Args:
        save_folder (str): Folder to save checkpoints to.
        filename (str): Filename to save checkpoints to.
        batch_interval (int): Number of batches between checkpoints.
    """

    def __init__(self, save_folder: str, batch_interval: int, filename: str = 'ep{epoch}-ba{batch}.pt'):
        self.backend, self.bucket_name, self.save_dir_format_str = parse_uri(save_folder)
        self.filename_format_str = filename
        self.batch_interval = batch_interval

    def batch_checkpoint(self, state: State, logger: Logger):
        if state.timestamp.batch.value % self.batch_interval == 0:
            filename = format_name_with_dist_and_time(self.filename_format_str, state.run_name, state.timestamp)
            save_dir = format_name_with_dist_and_time(self.save_dir_format_str, state.run_name, state.timestamp)
            save_path = str(Path(save_dir) / Path(filename))
            dirname = os.path.dirname(save_path)
            if dirname:
                os.makedirs(dirname, exist_ok=True)
            with fsdp_state_dict_type_context(state.model, state_dict_type='full'):
                state_dict = {'state': {'model': state.model.state_dict()}}
            if dist.get_global_rank() == 0:
                torch.save(state_dict, save_path)
