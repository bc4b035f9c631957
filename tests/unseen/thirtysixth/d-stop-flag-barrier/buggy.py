# thread: https://github.com/talmolab/sleap-nn/pull/471
"""Callbacks that connect a Lightning training to a graphical front end over ZMQ."""
import json
import logging
import time
from typing import Optional

import lightning as L
import torch
import zmq
from lightning.pytorch.callbacks import Callback
from torch import nn

logger = logging.getLogger(__name__)


class TrainingControllerZMQ(Callback):
    """Listens for commands of the front end on the first process.

    ``stop`` ends the training behind the current batch, ``set_lr`` changes the learning rate.
    """

    def __init__(self, address="tcp://127.0.0.1:9000", topic="", poll_timeout=10):
        super().__init__()
        self.address, self.topic, self.timeout = address, topic, poll_timeout
        self.context: Optional[zmq.Context] = None
        self.socket = None

    def setup(self, trainer, pl_module, stage):
        if trainer.is_global_zero and self.socket is None:
            self.context = zmq.Context()
            self.socket = self.context.socket(zmq.SUB)
            self.socket.subscribe(self.topic)
            self.socket.connect(self.address)

    def _poll(self, trainer):
        if self.socket is None or not self.socket.poll(self.timeout, zmq.POLLIN):
            return
        message = json.loads(self.socket.recv_string())
        logger.info("Received control message: %s", message)
        if message.get("command") == "stop":
            trainer.should_stop = True
        elif message.get("command") == "set_lr":
            logger.warning("set_lr is not supported in this mode")

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.is_global_zero:
            self._poll(trainer)
        trainer.strategy.barrier()  # BUG

    def teardown(self, trainer, pl_module, stage):
        if self.socket is not None:
            self.socket.close()
            self.context.term()
            self.socket = None


class ProgressReporterZMQ(Callback):
    def __init__(self, address="tcp://127.0.0.1:9001", what="train"):
        super().__init__()
        self.address, self.what = address, what
        self.socket = None

    def setup(self, trainer, pl_module, stage):
        if trainer.is_global_zero and self.socket is None:
            self.context = zmq.Context()
            self.socket = self.context.socket(zmq.PUB)
            self.socket.bind(self.address)
            time.sleep(0.5)

    def send(self, event, logs=None):
        if self.socket is not None:
            self.socket.send_string(json.dumps({"what": self.what, "event": event, "logs": logs or {}}))

    def on_train_epoch_end(self, trainer, pl_module):
        logs = {k: float(v) for k, v in trainer.callback_metrics.items()}
        if trainer.is_global_zero:
            self.send("epoch_end", logs)


class ConfidenceMapModule(L.LightningModule):
    def __init__(self, backbone: nn.Module, head: nn.Module, lr=1e-4):
        super().__init__()
        self.backbone, self.head, self.lr = backbone, head, lr

    def forward(self, images):
        return self.head(self.backbone(images))

    def training_step(self, batch, batch_idx):
        loss = nn.functional.mse_loss(self(batch["image"]), batch["confidence_maps"])
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        loss = nn.functional.mse_loss(self(batch["image"]), batch["confidence_maps"])
        self.log("val_loss", loss, on_epoch=True, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr, amsgrad=True)


def run_training(module, train_loader, val_loader, devices, max_epochs=200, controller_address=None):
    callbacks = [ProgressReporterZMQ()]
    if controller_address is not None:
        callbacks.append(TrainingControllerZMQ(controller_address))
    trainer = L.Trainer(
        accelerator="gpu", devices=devices, strategy="ddp", max_epochs=max_epochs, callbacks=callbacks
    )
    trainer.fit(module, train_loader, val_loader)
    return trainer
