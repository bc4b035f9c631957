"""Evaluation harness adapter: the batch is split over the data-parallel ranks.

EleutherAI/gpt-neox c49ca8673405, eval_tasks/eval_adapter.py
"""
import torch
import torch.nn.functional as F
from megatron import mpu


class EvalHarnessAdapter:
    def __init__(self, model, forward_step_fn, neox_args):
        self.model = model
        self._forward_step_fn = forward_step_fn
        self.neox_args = neox_args

    def _model_call(self, inps):
        batch_size = inps.shape[0]
        world_size = mpu.get_data_parallel_world_size()
        padded = batch_size % world_size
        if padded:
            n = world_size - padded
            inps = torch.cat([inps, inps[:1].expand(n, -1)], dim=0)

        ######## DATA PARALLEL STUFF ########
        # scatter inputs to all data-parallel ranks
        chunk_size = inps.shape[0] // world_size
        rank = mpu.get_data_parallel_rank()
        inps = inps[rank * chunk_size : (rank + 1) * chunk_size]
        #####################################

        data_wrapped = iter([{'text': F.pad(inps, pad=(0, 1))}])
        if self.neox_args.is_pipe_parallel:
            # need these flags to stop deepspeed from hanging
            self.model.first_output_send = True
            self.model.pipe_recv_buf = None
        _, logits = self._forward_step_fn(model=self.model, data_iterator=data_wrapped)

        ######## DATA PARALLEL STUFF ########
        # gather logits from all ranks
        if logits is not None:
            tensor_list = [torch.zeros_like(logits) for _ in range(world_size)]
            torch.distributed.all_gather(tensor_list, logits)  # BUG
            logits = torch.cat(tensor_list, dim=0)[:batch_size]

        return logits
