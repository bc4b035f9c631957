"""One-forward-one-backward schedule with data parallelism."""


class Schedule:
    def __init__(self, model, p2p, pp_rank, pp_size):
        # model: a backward all-reduces gradients over DP when require_backward_grad_sync is set
        self.model, self.p2p = model, p2p
        self.pp_rank, self.pp_size = pp_rank, pp_size
        self.inputs, self.outputs = [], []

    def forward_one(self, batch):
        x = self.p2p.recv_forward()
        y = self.model(batch, hidden_states=x)
        self.p2p.send_forward(y)
        self.inputs.append(x)
        self.outputs.append(y)

    def backward_one(self):
        grad = self.p2p.recv_backward()
        x, y = self.inputs.pop(0), self.outputs.pop(0)
        self.p2p.send_backward(self.model.backward(x, y, grad))

    def train_step(self, batches, requires_grad_sync):
        num_warmup = min(self.pp_size - self.pp_rank - 1, len(batches))
        num_remaining = len(batches) - num_warmup
        for i in range(num_warmup):
            self.forward_one(batches[i])
        if requires_grad_sync:
            self.model.require_backward_grad_sync = False
        for i in range(num_remaining):
            self.forward_one(batches[num_warmup + i])
            if requires_grad_sync and num_warmup == 0:
                self.model.require_backward_grad_sync = i == num_remaining - 1
            self.backward_one()
        for i in range(num_warmup):
            if requires_grad_sync:
                self.model.require_backward_grad_sync = i == num_warmup - 1
            self.backward_one()
