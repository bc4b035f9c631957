import torch.distributed as dist


class Trainer:
    def sum_norms(self):
        for param in self.model.norms():
            dist.all_reduce(param.grad, group=self.tp_group)

    def sync_grads(self):
        self.sum_norms()
        for param in self.model.parameters():
            dist.all_reduce(param.grad, group=self.dp_group)


class LoraTrainer(Trainer):
    def setup(self):
        for name, param in self.model.named_parameters():
            param.requires_grad_("lora" in name)

    def sync_grads(self):
        for param in self.model.parameters():
            if param.requires_grad:
                dist.all_reduce(param.grad, group=self.dp_group)
