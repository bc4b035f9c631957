"""Inner training loop of the Trainer on XLA devices."""
# thread: huggingface/transformers#20116
import torch

from transformers.utils import is_torch_tpu_available, logging

if is_torch_tpu_available(check_device=False):
    import torch_xla.core.xla_model as xm

logger = logging.get_logger(__name__)


class Trainer:
    def __init__(self, model, args, optimizer, lr_scheduler, scaler=None):
        self.model, self.args = model, args
        self.optimizer, self.lr_scheduler = optimizer, lr_scheduler
        self.do_grad_scaling = scaler is not None
        self.scaler = scaler

    def training_step(self, model, inputs):
        model.train()
        with self.compute_loss_context_manager():
            loss = self.compute_loss(model, inputs)
        if self.args.gradient_accumulation_steps > 1:
            loss = loss / self.args.gradient_accumulation_steps
        (self.scaler.scale(loss) if self.do_grad_scaling else loss).backward()
        return loss.detach()

    def _inner_training_loop(self, epoch_iterator, steps_in_epoch):
        args, model = self.args, self.model
        tr_loss = torch.tensor(0.0).to(args.device)
        for step, inputs in enumerate(epoch_iterator):
            tr_loss += self.training_step(model, inputs)
            if (step + 1) % args.gradient_accumulation_steps != 0 and (step + 1) != steps_in_epoch:
                continue

            if args.max_grad_norm is not None and args.max_grad_norm > 0:  # BUG: the reduction below depends on clipping being on
                if is_torch_tpu_available():
                    gradients = xm._fetch_gradients(self.optimizer)
                    xm.all_reduce("sum", gradients, scale=1.0 / xm.xrt_world_size())
                if self.do_grad_scaling:
                    self.scaler.unscale_(self.optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)

            optimizer_was_run = True
            if self.do_grad_scaling:
                scale_before = self.scaler.get_scale()
                self.scaler.step(self.optimizer)
                self.scaler.update()
                optimizer_was_run = scale_before <= self.scaler.get_scale()
            else:
                self.optimizer.step()
            if is_torch_tpu_available():
                xm.mark_step()
            if optimizer_was_run:
                self.lr_scheduler.step()
            model.zero_grad()
        return tr_loss / steps_in_epoch
