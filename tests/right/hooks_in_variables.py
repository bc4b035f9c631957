# Hooks of Megatron-FSDP with every test in a variable: parameters are told apart in several loops, on one path and not on another.
import torch


class GradReducePipeline:

    def reduce_gradients(self, params: List[torch.Tensor], suggested_queue_capacity: Optional[int]=None, outer_fsdp_group_grad_reduce: bool=False):
        for param in params:
            if bucket_group:
                self._bucket_group_gradient_reduce(bucket_group, async_op=True, outer_fsdp_group_grad_reduce=outer_fsdp_group_grad_reduce)

    def _bucket_group_gradient_reduce(self, bucket_group: List[int], async_op: bool=False, outer_fsdp_group_grad_reduce: bool=False) -> bool:
        with torch.cuda.stream(reduce_scatter_stream):
            with _coalescing_manager(dp_group):
                for bucket_id in bucket_group:
                    if ddp_config.data_parallel_sharding_strategy == 'no_shard':
                        pass
                    else:
                        torch.distributed.reduce_scatter_tensor(output=grad_shard, input=unreduced_grad, op=reduce_op, group=gbuf.data_parallel_group)


class MegatronFSDP(torch.nn.Module):

    def __init__(self, module: torch.nn.Module, dist_index, ddp_config=None):
        self._register_fsdp_hooks(self.module)

    def _init_fsdp_param_and_grad_buffer(self):
        self.grad_reduce_pipeline = GradReducePipeline(self.param_and_grad_buffer, rs_stream=self.side_stream_for_buffer_copy_and_grad_accum)

    def _register_fsdp_hooks(self, root_module):

        def _grad_acc(param):
            group = self.param_and_grad_buffer.parameter_groups[group_id]
            gbuf = group.hfsdp_helper_gbuf if group.hfsdp_helper_gbuf else group.main_grad_buffer
            _c13524 = gbuf.is_data_distributed
            if _c13524:
                _c13521 = not param.grad_added_to_main_grad
                if _c13521:
                    param.main_grad = param.get_main_grad()
                    _c13518 = param.grad is not None
            else:
                _c13522 = not param.grad_added_to_main_grad

        @torch.compiler.disable
        def _process_post_backward_gradients(param_list):
            for param in param_list:
                _grad_acc(param)
            if _c13528:
                self.grad_reduce_pipeline.reduce_gradients(param_list, suggested_queue_capacity=self.suggested_RS_queue_capacity, outer_fsdp_group_grad_reduce=self.dist_index.use_hybrid_fsdp and (is_last_microbatch or self.model_auto_sync))
        for name, module in root_module.named_modules():
            _c13548 = self.enable_fine_grained_param_gather_hook
            _c13549 = self.enable_fine_grained_param_gather_backward_hook
            _c13550 = any((is_submodule(module, fsdp_module) for fsdp_module in fsdp_modules))
            _c13551 = not self.enable_fine_grained_param_gather_hook
            _c13552 = isinstance(module, tuple(fsdp_unit_modules))
            _c13553 = isinstance(module, tuple(fsdp_unit_modules))
            if _c13553:
                _c13546 = self.ddp_config.data_parallel_sharding_strategy == 'optim_grads_params'
                grad_acc_param_list = [p for p in module.parameters() if p.requires_grad]
            else:
                grad_acc_param_list = [p for p in module.parameters(recurse=False) if p.requires_grad]
            for param in grad_acc_param_list:
                _c13547 = not param.requires_grad
                self.grad_acc_hooks[f'grad_acc and reduce for {self.param_to_name[param]}'] = param.register_post_accumulate_grad_hook(lambda p: None if getattr(p, 'skip_backward_post_hook', False) else _process_post_backward_gradients([p]))
