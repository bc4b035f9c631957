"""Pipeline wrapper that re-initialises its stages when the sequence length changes."""
# thread: NVIDIA-NeMo/Automodel#3530
import torch
from torch.distributed.pipelining.schedules import _PipelineSchedule


class AutoPipeline:
    def __init__(self, schedule: _PipelineSchedule, stages, pp_batch_size, hidden_size, vocab_size):
        self.schedule = schedule
        self.stages = stages
        self.pp_batch_size = pp_batch_size
        self.hidden_size = hidden_size
        self.vocab_size = vocab_size
        self._seq_len = None

    def _static_metadata(self, stage, seq_len):
        ids = torch.empty(self.pp_batch_size, seq_len, dtype=torch.long, device="meta")
        hidden = torch.empty(self.pp_batch_size, seq_len, self.hidden_size, device="meta")
        logits = torch.empty(self.pp_batch_size, seq_len, self.vocab_size, device="meta")
        return (ids if stage.is_first else hidden,), (logits if stage.is_last else hidden,)

    def _initialize_stages(self, seq_len, has_backward=True):
        for stage in self.stages:
            inputs, outputs = self._static_metadata(stage, seq_len)
            stage.inputs_meta = inputs
            stage._configure_outputs_meta(outputs)
            stage._prepare_forward_infra(self.schedule._n_microbatches, inputs)
            if has_backward:
                stage._prepare_backward_infra(self.schedule._n_microbatches)
            self._post_metadata_inference_cleanup(stage)

    def _post_metadata_inference_cleanup(self, stage):
        """Drop what a tracing pass over the stage may have left behind."""
        for param in stage.submod.parameters():
            param.grad = None  # BUG: runs between accumulation steps, earlier gradients are lost

    def reset_pp_stage_shapes(self, seq_len):
        if seq_len == self._seq_len:
            return
        self._seq_len = seq_len
        self._initialize_stages(seq_len)
        self.schedule._stages_forward_initialized = True

    def step(self, input_ids, target=None, losses=None):
        self.reset_pp_stage_shapes(input_ids.size(1))
        args = (input_ids,) if self.stages[0].is_first else ()
        return self.schedule.step(*args, target=target, losses=losses)


def train_step(pipeline, batches, optimizer, num_label_tokens, pp_has_last_stage):
    """Gradients of all batches accumulate before one optimizer step."""
    losses = []
    for batch in batches:
        target = batch["labels"] if pp_has_last_stage else None
        pipeline.step(batch["input_ids"], target=target, losses=losses)
    for stage in pipeline.stages:
        for p in stage.submod.parameters():
            if p.grad is not None:
                p.grad.div_(num_label_tokens)
    optimizer.step()
    optimizer.zero_grad()
    return losses
