"""FP16 training with dynamic loss scaling for a tensor- and pipeline-parallel model."""
import torch
import torch.distributed as dist


class DynamicGradScaler:
    def __init__(self, initial_scale=2.0 ** 16, min_scale=1.0, growth_factor=2.0,
                 backoff_factor=0.5, growth_interval=1000, hysteresis=2):
        self._scale = torch.tensor([initial_scale], dtype=torch.float32, device="cuda")
        self.min_scale = min_scale
        self.growth_factor, self.backoff_factor = growth_factor, backoff_factor
        self.growth_interval, self.hysteresis = growth_interval, hysteresis
        self._growth_tracker, self._hysteresis_tracker = 0, hysteresis

    @property
    def scale(self):
        return self._scale

    @property
    def inv_scale(self):
        return self._scale.double().reciprocal().float()

    def update(self, found_inf):
        if found_inf:
            self._growth_tracker = 0
            self._hysteresis_tracker -= 1
            if self._hysteresis_tracker <= 0:
                self._scale = torch.clamp(self._scale * self.backoff_factor, min=self.min_scale)
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self.growth_interval:
                self._growth_tracker, self._hysteresis_tracker = 0, self.hysteresis
                self._scale = self._scale * self.growth_factor


class Float16OptimizerWithFloat16Params:
    def __init__(self, model, make_optimizer, scaler, clip_grad,
                 tp_rank, dp_group, model_parallel_group):
        self.model = model
        self.model_params = [p for p in model.parameters() if p.requires_grad]
        self.main_params = [p.detach().clone().float() for p in self.model_params]
        self.optimizer = make_optimizer(self.main_params)
        self.scaler = scaler
        self.clip_grad = clip_grad
        self.tp_rank = tp_rank
        self.dp_group = dp_group
        self.model_parallel_group = model_parallel_group
        self.found_inf = torch.zeros(1, dtype=torch.float32, device="cuda")

    def scale_loss(self, loss):
        return self.scaler.scale * loss

    def reduce_model_grads(self):
        for p in self.model_params:
            p.grad /= dist.get_world_size(self.dp_group)
            dist.all_reduce(p.grad, group=self.dp_group)

    def _unscale_main_grads_and_check_for_nan(self):
        for main, model in zip(self.main_params, self.model_params):
            main.grad = model.grad.float()
        self.found_inf.fill_(0.0)
        torch._amp_foreach_non_finite_check_and_unscale_(
            [p.grad for p in self.main_params], self.found_inf, self.scaler.inv_scale
        )
        dist.all_reduce(self.found_inf, op=dist.ReduceOp.MAX, group=self.dp_group)  # BUG
        return self.found_inf.item() > 0

    def clip_grad_norm(self):
        sq = torch.zeros(1, device="cuda")
        for main, model in zip(self.main_params, self.model_params):
            shared = getattr(model, "shared", False)
            duplicate = not getattr(model, "tensor_model_parallel", False) and self.tp_rank != 0
            if not shared and not duplicate:
                sq += main.grad.norm() ** 2
        dist.all_reduce(sq, group=self.model_parallel_group)
        coeff = self.clip_grad / (sq.sqrt() + 1.0e-6)
        if coeff < 1.0:
            for p in self.main_params:
                p.grad.mul_(coeff)
        return sq.sqrt().item()

    @torch.no_grad()
    def step(self):
        found_inf_flag = self._unscale_main_grads_and_check_for_nan()
        self.scaler.update(found_inf_flag)
        if found_inf_flag:
            # all ranks of the model-parallel group take the same branch
            return False, None
        grad_norm = self.clip_grad_norm()
        self.optimizer.step()
        for main, model in zip(self.main_params, self.model_params):
            model.copy_(main)
        return True, grad_norm
