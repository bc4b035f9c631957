import torch.distributed as dist


class Trainer:
    def __init__(self, model, accelerator, mesh):
        self.model, self.accelerator = model, accelerator
        self.dp_mesh, self.tp_mesh = mesh["dp"], mesh["tp"]
        tp = self.tp_mesh.size()
        for p in model.parameters():
            p.register_hook(lambda g: g / tp)

    def count(self, batches):
        num_items = sum((batch["labels"] != -100).sum() for batch in batches)
        dist.all_reduce(num_items, group=self.dp_mesh.get_group())
        return num_items

    def compute_loss(self, inputs, num_items):
        loss = self.model(**inputs, num_items_in_batch=num_items).loss
        return loss * self.accelerator.num_processes
