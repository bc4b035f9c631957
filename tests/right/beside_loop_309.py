"""a loop over the names of its parameters marks every part."""
import torch


class Mixer(torch.nn.Module):
    def __init__(self, heads, pg_collection):
        super().__init__()
        tp_size = pg_collection.tp.size()
        self.heads_local = heads // tp_size
        self.decay = torch.nn.Parameter(torch.ones(self.heads_local))
        self.step = torch.nn.Parameter(torch.zeros(self.heads_local))
        self.conv = torch.nn.Conv1d(self.heads_local, self.heads_local, kernel_size=4, groups=self.heads_local)
        setattr(self.decay, "tensor_model_parallel", True)
        for name in ("step",):
            setattr(getattr(self, name), "tensor_model_parallel", True)
        for parameter in self.conv.parameters():
            setattr(parameter, "tensor_model_parallel", True)
