//! Which checks look at which functions and classes. In: nothing. Out: [`OF_CLASSES`], and [`OF_FUNCTIONS`], each with what the text of a file or of a function shows if
//! it has anything to say. Never: what a check does. Next: `mod.rs`, which runs them.

use super::*;

/// A check of single functions, and what the text of a file shows, in lowercase, if it has anything to say of one of its functions.
#[derive(Clone, Copy)]
pub struct Check {
    /// One of these words.
    pub(super) words: &'static [&'static str],
    /// Whether the words are names, and not parts of longer ones.
    pub(super) whole: bool,
    /// Or the name of a collective.
    pub(super) communicates: bool,
    /// Whether it may have something to say of a function that looks like this.
    pub(super) concerns: fn(&Glance) -> bool,
    /// What the text of the function itself shows as well: of each of these one word.
    pub(super) near: &'static [&'static [&'static str]],
    /// Whether those count only where they are written so, not in capitals.
    pub(super) as_written: bool,
    /// Or that it looks like this.
    pub(super) or_seen: fn(&Glance) -> bool,
    pub(super) of: OfFunction,
}

impl Check {
    /// The same, of functions in which of each of these stands one word.
    const fn with(self, near: &'static [&'static [&'static str]]) -> Check {
        Check { near, ..self }
    }

    /// The same, of functions in which one of these stands just so.
    const fn with_written(self, near: &'static [&'static [&'static str]]) -> Check {
        Check { near, as_written: true, ..self }
    }

    /// The same, of functions that look so.
    const fn where_seen(self, concerns: fn(&Glance) -> bool) -> Check {
        Check { concerns, ..self }
    }

    /// The same, also of functions that look so without any of the words.
    const fn or_seen(self, or_seen: fn(&Glance) -> bool) -> Check {
        Check { or_seen, ..self }
    }

    /// Whether it has something to look at in a function.
    pub(super) fn is_due(&self, seen: &Glance, shown: &Shown, at: usize, func: &Func) -> bool {
        (self.concerns)(seen) && ((self.or_seen)(seen) || shown.is_near(at, func.span))
    }
}

/// A check of every function of every file.
const fn of_all(of: OfFunction) -> Check {
    Check {
        words: &[],
        whole: true,
        communicates: false,
        concerns: |_| true,
        near: &[],
        as_written: false,
        or_seen: |_| false,
        of,
    }
}

/// A check of functions that communicate.
const fn of_collectives(of: OfFunction) -> Check {
    Check { communicates: true, concerns: |seen| seen.communicates, ..of_all(of) }
}

/// A check of functions in whose file one of these words stands.
const fn of_words(words: &'static [&'static str], of: OfFunction) -> Check {
    Check { words, whole: false, ..of_all(of) }
}

/// A check of functions in whose file one of these names stands.
const fn of_names(words: &'static [&'static str], of: OfFunction) -> Check {
    Check { words, ..of_all(of) }
}

/// A check of functions that count.
const OF_COUNTS: Check = Check {
    communicates: true,
    concerns: |seen| seen.counts,
    near: &[counts::EVIDENT],
    or_seen: |seen| seen.communicates,
    ..of_words(counts::AVERAGED, counts::local_counts)
};

/// The checks of single functions, in the order in which they report.
pub const OF_FUNCTIONS: &[Check] = &[
    of_collectives(lost::copies),
    of_collectives(lost::computed),
    of_collectives(lost_gradients::kept_apart),
    of_words(&[".contiguous()", ".clone()"], lost::copies_for_calls).where_seen(|seen| seen.gives_copies),
    of_collectives(lost::results),
    of_collectives(no_result::used),
    of_collectives(no_result::indexed),
    of_collectives(no_result::received),
    of_words(&["all_reduce(xm.", "all_reduce("], no_result::returned).with(&[&["all_reduce(xm.", "reduce_sum"]]),
    of_words(&[".apply("], unpaired::applied).with(&[&[".apply("]]),
    of_words(&["rank"], empty_part::cut).with(&[&["rank"], &[":"], empty_part::LENGTHS]),
    of_collectives(mean_of_own::losses).with(&[&["mean", "sum", "avg"], mean_of_own::SEQUENCE]),
    of_words(&[".apply("], mean_of_own::applied).with(&[&[".apply("], mean_of_own::SEQUENCE, &["mask"]]),
    of_words(&[".apply("], lost::applied).with(&[&[".apply("]]),
    of_words(switch::WORDS, switch::group_choices).where_seen(|seen| seen.is_switched),
    of_words(&["to_local", "full_tensor"], local_gradient::bare).with(&[&["to_local", "full_tensor", "weight"]]),
    of_words(part_of_width::WORDS, part_of_width::divided).with(&[part_of_width::WORDS, &["def forward("]]),
    of_words(style_input::WORDS, style_input::bare).with(&[style_input::WORDS]),
    of_words(cut_local::WORDS, cut_local::cut_off).with(&[cut_local::WORDS]),
    of_words(averaged::REGISTER, averaged::hooks).with(&[averaged::REGISTER]),
    of_collectives(averaged::of_lists).with(&[
        &["sequence_parallel"],
        &["append(", "for "],
        &["avg", "world_size", "tp_size", "mp_size"],
    ]),
    of_collectives(averaged::in_loops).with(&[&["grad"], &["sequence"], &["avg", "world_size", "tp_size", "mp_size"]]),
    of_words(&["partial"], part_out::parts).with(&[&["to_local", "full_tensor"]]),
    of_words(&["from_local("], grad_label::wrapped).with(&[&["from_local("], &["self."]]),
    of_words(&["to_local("], own_rows::given).with(&[&["local"]]),
    of_words(&["from_local("], own_rows::wrapped).with(&[&["from_local("], &["to_local"], &["placements"]]),
    of_words(&["local_map"], local_map::regions),
    of_words(&["in_grad_placements"], region_grads::complete),
    of_words(&[plan_heads::CONTEXT], plan_heads::local_heads).with(&[style_plan::WORDS]).where_seen(|seen| seen.plans),
    of_words(&["q_norm\"", "k_norm\"", "q_norm'", "k_norm'"], plan_heads::kept_norms)
        .with(&[style_plan::WORDS])
        .where_seen(|seen| seen.plans),
    of_words(style_plan::WORDS, style_plan::norms).with(&[style_plan::WORDS]).where_seen(|seen| seen.plans),
    of_names(local_map::ROUTERS, local_map::styles)
        .with(&[local_map::ROUTERS, local_map::AS_KEYS])
        .where_seen(|seen| seen.plans || seen.renames),
    of_words(mesh_dims::WORDS, mesh_dims::counts).with(&[mesh_dims::WORDS]).or_seen(|seen| seen.renames),
    of_words(shard_dim::WORDS, shard_dim::dims).with(&[shard_dim::WORDS]),
    of_words(&[".step("], unreduced_step::steps).with(&[&[".step("], unreduced_step::SPLITS]),
    of_words(&[".step("], unreduced_step::steps_of_loaders).with(&[&[".step("], metrics::COUNTS]),
    of_names(narrow::WRAPPERS, narrow::wrappers).with(&[narrow::WRAPPERS, &["process_group", "mesh", "**"]]),
    of_collectives(narrow::sums).with(&[&["dp", "data_parallel"], &["grad"]]),
    of_collectives(own_group::left_out),
    of_collectives(group_buffers::made_for_group),
    of_words(&["embedding("], masked_rows::summed).with_written(&[&["embedding("], &["<"], &[">="]]),
    of_collectives(unread_group::unread),
    of_words(&["group=none", "mesh=none", "= none"], group_argument::left_out).where_seen(|seen| seen.leaves_groups),
    of_names(&["src", "dst", "broadcast"], fixed_source::roots).where_seen(|seen| seen.communicates),
    of_words(&["distributedsampler("], sampler::of_all).with(&[&["distributedsampler("]]),
    of_words(&["distributedsampler("], sampler::replicas).with(&[&["distributedsampler("]]),
    of_words(&["distributedsampler("], epochs::never_told).with(&[&["epoch"], &["load"]]),
    of_words(&["distributedsampler("], sampler_seed::seeds).with(&[&["distributedsampler("], &["seed"]]),
    of_names(&["get_rank"], own_group::global_rank).where_seen(|seen| seen.asks_rank),
    of_names(&["get_rank"], world_rank::of_other_group).where_seen(|seen| seen.asks_rank),
    of_names(&["get_rank"], world_offset::offsets).where_seen(|seen| seen.asks_rank),
    of_names(&["get_rank"], world_offset::quotients).with(&[&["//"], &["chunk(", "tensor_split("]]),
    of_names(&["get_rank"], mesh_rank::given_out).with(&[&["get_rank"], &["size"]]),
    of_words(&["chunk(", "split(", "narrow(", ":"], other_part::picked)
        .with(&[&["rank"], &["size"], &["//", "chunk(", "tensor_split("]])
        .where_seen(|seen| seen.asks_rank),
    of_collectives(own_group::other_size),
    of_collectives(own_group::counted_again),
    of_collectives(asked_group::guards),
    of_collectives(asked_group::ratios),
    of_collectives(asked_group::reports),
    of_collectives(each_round::scaled),
    of_collectives(each_round::apart),
    of_collectives(plain_input::handed_on).with(&[&["self."], &["gather"]]),
    of_collectives(held_scaled::rounds).with(&[&["mul_(", "div_(", "*=", "/="]]),
    of_collectives(mixed_mean::branches).with(&[&["avg"], &["grad"]]),
    of_words(&["allreduce"], named_experts::kept).with(&[&["getattr("], &["expert", "ep", "moe"]]),
    of_words(&["broadcast("], expert_broadcast::parameters).with(&[&["broadcast"], &["parameters("]]),
    of_collectives(unused_group::swapped).with(&[&["expert"]]),
    of_collectives(unused_group::given).with(&[&["expert", "moe", "edp"], &["grad"]]),
    of_collectives(copies::summed).with(&[&["grad"], copies::SPLIT]),
    of_words(&["mesh_dim_names"], left_dim::wrappers),
    of_names(&["sequenceparallel"], whole_input::embeddings),
    of_names(&["sequenceparallel"], whole_input::residuals),
    of_names(&["sequenceparallel"], plan_pairs::norms),
    of_words(&["rowwiseparallel"], plan_pairs::products).with(&[&["rowwise"], &["colwise"]]),
    of_collectives(own_part::sums),
    of_words(&["fully_shard"], factor::inner_mesh).with(&[&["fully_shard"]]),
    of_words(&["reduction="], factor::mean_not_undone).with(&[&["reduction="]]),
    of_words(&["cp_", "_cp", "context_parallel"], factor::auxiliary).with(&[factor::RESULTS]),
    of_words(&["cp_", "_cp", "context_parallel"], factor::whatever_the_flag).with(&[factor::RESULTS]),
    of_words(&["zip("], copied_first::in_function).with(&[&[".grad", "main_grad"], &["reduce"]]),
    of_names(&["distributeddataparallel", "ddp"], doubled::wrapped_parts).with(&[&["process_group"]]),
    of_words(&["context_parallel("], uncut_buffer::buffers).with(&[&["buffers"]]),
    of_words(&["n_microbatches", "schedule"], scheduled::losses).with(&[&["loss_fn"]]),
    of_words(&["schedule.step("], scheduled::repeated).with(&[&["schedule.step("], &["for "]]),
    of_words(&["microbatch", "micro_batch"], rounds_divided::losses).with(&[
        &["forward_step", "forward_func", "forward_backward"],
        &["len("],
        &["loss"],
    ]),
    of_words(&["to_empty(", "assign=true"], replaced::hooks),
    of_words(old_parameters::WRAPS, old_parameters::optimizers).with(&[&["optim", "adam", "sgd"]]),
    of_words(old_parameters::REPLACES, old_parameters::marks).where_seen(|seen| seen.wraps),
    of_words(old_parameters::REPLACES, old_parameters::meshes)
        .with(&[&["parallelize_module"]])
        .where_seen(|seen| seen.wraps),
    of_collectives(divided_again::sums).with(&[&["all_reduce"], &["world_size", ".size("], &["/=", "div_(", "mul_("]]),
    of_collectives(averaged_twice::means).with(&[&["avg"], &["world_size"]]),
    of_collectives(own_largest::sums).with(&[&["exp("], &["max("]]),
    of_collectives(hand_softmax::judged).with(&[&["max"], &["exp", "log"], &["all_reduce", "reduce_from"]]),
    of_words(&["all_reduce("], ratio_of_counts::weights).with(&[
        &[".sum("],
        &[" / "],
        &["loss"],
        &["token", "count", "mask"],
    ]),
    of_collectives(part_mean::means).with(&[&[".sum("], &["MAX"]]),
    of_collectives(rebound::variables).with(&[&["unflatten", "split("]]),
    of_words(&["gradscaler("], own_scaler::scalers).with(&[&["sharded", "fsdp"]]),
    of_words(&["arange("], positions::restarted).with(&[&["arange("], &["pos"], &["rank"]]),
    of_words(&["gather"], own_labels::labels).with(&[&["arange("], &["entropy", "criterion", "loss"]]),
    of_collectives(complete_grads::summed).with(&[&["all_reduce"], &[".grad", ".main_grad"]]),
    of_collectives(beside_layers::complete).with(&[&["grad"], &["named_parameters", "getattr(", "parameters()"]]),
    of_words(&["save_for_backward"], foreign_targets::subtracted).with(&[
        &["def backward"],
        &["saved_tensors"],
        &["-=", " - "],
    ]),
    of_words(&["needs_input_grad"], needed::gradients).with(&[&["needs_input_grad"]]),
    of_words(&["finali", "grad_sync", "reduce_grad"], finaliser_off::steps).with(&[&["grad"], &["sync", "reduce"]]),
    of_words(&["embed"], late_shared::summed).with(&[&["embed"], &["grad"], &["reduce", "scatter", "sync"]]),
    of_words(&["gather"], views_apart::taken).with(&[&["gather"], &["cat("], &["diag(", "diagonal(", "chunk("]]),
    of_collectives(wide_buffer::gathers).with(&[
        &["_into_tensor(", "_all_gather_base("],
        &["size", "shape"],
        &["empty(", "zeros("],
    ]),
    of_collectives(wide_buffer::scatters).with(&[
        &["reduce_scatter_tensor(", "_reduce_scatter_base("],
        &["size", "shape"],
        &["empty(", "zeros("],
    ]),
    of_words(&[".apply("], applied_copy::written).with(&[&[".apply("]]),
    of_words(&[".apply("], beside_copy::weights).with(&[&[".apply("]]),
    of_collectives(gate_inverted::sums).with(&[&["grad"], &["sequence_parallel", "mode"]]),
    of_words(&["normal_(", "uniform_("], spread_of_part::drawn)
        .with(&[&["normal_(", "uniform_("], &["shape", "size(", "fan_in"]]),
    of_words(&["def backward("], own_divisor::of_part).with(&[&["/", "div"], &["ctx."], &["saved_tensors", "ctx."]]),
    of_collectives(mean_backward::of_means).with(&[&["mean("], &["world_size"]]),
    of_collectives(mean_backward::of_own_rows).with(&[&["all_reduce"], &["/", "div"], &["saved_tensors", "ctx."]]),
    of_words(&["distributeddataparallel"], affine_twice::returned).with(&[
        &["all_reduce"],
        &["def backward"],
        &["saved_tensors", "ctx."],
    ]),
    of_words(&["add_("], overwritten::gradients).with(&[&["add_("], &["copy_("], &["grad"]]),
    of_words(&["_hook("], late_hook::registered).with(&[
        &["_hook("],
        &["for "],
        &["reduce", "gather", "broadcast", "scatter"],
    ]),
    of_collectives(named_gradients::parameters).with(&[&["grad"], &["all_reduce("], &["parameters()"]]),
    of_collectives(parameter_divided::divided).with(&[&[".grad"], &["/=", ".div_("], &["all_reduce"]]),
    of_words(&["async"], dropped_handle::calls).with(&[
        &["async"],
        &["return"],
        &["reduce", "gather", "alltoall", "all_to_all"],
    ]),
    of_words(&["autograd"], handed_on::left_out).with(&[&["def forward"], &["ctx."]]),
    of_words(&["autograd"], handed_on::around).with(&[&["def forward"], &["ctx."]]),
    of_collectives(own_statistic::met).with(&[&["mean(", "sum("], &["exp(", "pow(", "square(", " * ", "**"]]),
    of_words(&["all_reduce", "all_gather"], own_statistic::of_own_function).with(&[
        &[".apply("],
        &["mean(", "sum("],
        &["sqrt(", "pow(", "var", " * "],
    ]),
    of_words(&["no_grad"], weights_cut::gathered).with(&[&["no_grad"], weights_cut::WEIGHTS, &["else"]]),
    of_words(&["schedule"], group_argument::of_stages).with(&[&["schedule"], &["step("]]),
    of_collectives(nones::inverted),
    of_words(&["world"], one_rank::alone).with(&[&["world"], &["reduce", "gather", "broadcast"]]),
    of_collectives(statistic::squares).with(&[&["sqrt("]]),
    of_collectives(statistic::deviations).with(&[&["sum("], &[" - "], &["**", "square", "pow("]]),
    of_collectives(variances_weighted::pairs).with(&[&["var"], &["mean"]]),
    of_collectives(mean_of_variances::scales).with(&[&["var("], &["mean("], &["sqrt"]]),
    of_collectives(statistic::centres).with(&[&["mean("], &[" - "]]),
    of_collectives(strided::gradients).with(&[&[".grad."]]),
    of_words(&["divide_factor(1"], summed_scaled::losses).with(&[&["loss"], &["world", "dp_size"]]),
    of_words(&["register_hook("], summed_scaled::hooked).with(&[&["getattr("], &["world_size("]]),
    of_collectives(handles::unwaited),
    of_collectives(handles::written).with(&[&["async_op"]]),
    of_collectives(one_buffer::lists).with(&[&["gather", "all_to_all"], &["*"]]),
    of_words(unfilled::MAKES, unfilled::buffers).with(&[unfilled::MAKES, unfilled::RANKS]),
    of_collectives(in_flight::changed).with(&[&["async_op"], &["grad"]]),
    of_collectives(one_path::unwaited).with(&[&["async_op"], &[".wait("], &["if "]]),
    of_collectives(never_waited::lost).with(&[&["async_op"]]),
    of_collectives(never_waited::started).with(&[&["async_op"], &["return"]]),
    of_collectives(kept_handles::cleared).with(&[&["async_op"], &["self."], &[".append("]]),
    of_words(&["grad_norm"], shard_norm::clipped).with(&[&["norm"]]),
    of_words(&["fullyshardeddataparallel", "fully_shard"], master_norm::clipped).with(&[&["clip_grad_norm"]]),
    of_words(&["_group", "_pg"], two_norms::joined).with(&[&[".grad"], two_norms::ROOTS, two_norms::SCALES, &["norm"]]),
    of_words(&["dp_", "_dp", "data_"], gather_averaged::losses).with(&[&[".apply("], &["backward("], &["loss"]]),
    of_words(&["schedule.step("], stage_norm::clipped).with(&[&["clip_grad_norm"]]),
    of_words(&["clip_grad_norm"], part_list::clipped).with(&[&["clip_grad_norm"], &["self"]]),
    of_words(&["no_sync", "grad_sync", "gradient_sync"], no_sync::steps).with(&[&["step("]]),
    of_words(&["grad_sync"], no_sync::late_flag),
    of_words(clip_guard::CLIPS, clip_guard::reduced).with(&[clip_guard::CLIPS, &[".step("], &["reduce", "average_"]]),
    of_words(&["grad_sync", "gradient_sync"], cooldown::last_stage).with(&[
        &["grad_sync", "gradient_sync"],
        &["range("],
        &["backward"],
        &["- 1"],
    ]),
    of_words(&["ignored_"], outside::ignored).with(&[&["ignored_"]]).where_seen(|seen| seen.wraps),
    of_words(&[".module"], bypassed::in_class).with_written(&[&[".module"]]),
    of_words(&[".module"], bypassed::around).with(&[&[".module"]]).where_seen(|seen| seen.wraps),
    of_words(&["distributeddataparallel", "prepare("], no_forward::trained).with(&[
        &["distributeddataparallel", "ddp", "prepare("],
        &["backward("],
        &["step("],
        &["optim"],
    ]),
    of_words(unwrapped::UNWRAPS, unwrapped::around).with(&[&[".step("]]),
    of_words(&[".module"], unwrapped::chosen).with(&[&[".module"], &["isinstance("], &[".step("]]),
    of_words(&[".module"], unwrapped::in_helper).with(&[&[".module"], &[".step("]]),
    of_words(&["autograd.grad(", "autograd import grad"], taken_grads::stepped).with(&[
        &["grad("],
        &["param"],
        &["step("],
    ]),
    of_words(&["torch.optim", "optim."], outside::attached).where_seen(|seen| seen.puts),
    of_words(&["to_local", "local_grad"], local_norm::roots),
    of_words(&["sqrt", "norm"], local_norm::roots_of_marked).with(&[&[".grad"], &["rank"]]),
    of_words(&["to_local"], local_norm::partial),
    of_words(&["to_local"], asked_norm::parts).with(&[&["to_local"], &["sqrt", "0.5"], &["dtensor"], &["grad"]]),
    of_collectives(asked_norm::averaged).with(&[&["sqrt("], &["get_world_size"], &["grad"], &["max_norm", "clip"]]),
    of_collectives(asked_norm::roots).with(&[&["norm("], &["all_reduce"], &["grad"], &["max_norm", "clip"]]),
    of_collectives(norm_squared::summed).with(&[&["norm"], &["grad"], norm_squared::SQUARES, &["all_reduce"]]),
    of_words(&["pp_mesh", "pp_group", "pipe"], norm_of_each::clipped).with(&[
        norm_of_each::PARTS,
        &["norm", "clip"],
        &["for "],
    ]),
    of_words(stale::PASSES, stale::arrivals).where_seen(|seen| seen.passes_on),
    of_words(&["saved_tensors"], stale_block::blocks).with(&[&["def backward"], &[" % "], &["for "]]),
    of_words(unread_block::TAKES, unread_block::blocks)
        .with(&[unread_block::TAKES, unread_block::KEYS, &["for ", "while "]])
        .where_seen(|seen| seen.calls_in_rounds),
    OF_COUNTS,
    of_collectives(half_ratio::added_up).with(&[&["all_reduce"], &["+="], &["/", "div"], &["sum("]]),
    of_collectives(order_ignored::orders).with(&[order_ignored::ORDERS, order_ignored::TURNS, &["gather"]]),
    of_words(norm_classes::SUMS, norm_classes::chosen).with(&[&["isinstance("], &["norm)", "norm,"], &["modules()"]]),
    of_words(part_by_whole::COUNTS, part_by_whole::quotients).with(&[&["super().__init__", "super("], &[" // "]]),
    of_collectives(half_ratio::weighed).with(&[&["all_reduce"], &["exp("], &["MAX"]]),
    of_collectives(half_ratio::statistics).with(&[&["all_reduce"], &["size"], &[".sum("], &["**", "pow(", "square"]]),
    of_collectives(own_size::kept_counts).with(&[&["self."], &["/"]]),
    of_collectives(own_size::divisors).with(&[own_size::MATCHES, own_size::SIZES, &["/", "div"]]),
    of_words(cut_parts::WORDS, cut_parts::means).with(&[cut_parts::WORDS, &["data_parallel_group"]]),
    of_words(&["bias", "Partial"], shared_bias::divided)
        .with(&[&["/"], &["linear", "@", "mm(", "matmul"]])
        .where_seen(|seen| seen.communicates),
    of_words(&["from_local(", "reduce"], whole_bias::added).with(&[
        &["bias", ".b_", "_b_", ".b1", ".b2"],
        &["from_local(", "reduce"],
        &["self."],
        &["+", "linear("],
        &["mm(", "matmul(", "linear(", "einsum(", "@"],
    ]),
    of_words(&["backward("], unread_count::given).with(&[&["all_reduce("], &["backward("], &["loss"]]),
    of_words(&["backward("], kept_count::unread).with(&[&["backward("], &["all_reduce("], &[".sum("], &["mask"]]),
    of_words(&["local_process_index", "local_rank", "slice(0"], node_rank::picks).with(&[&[
        "local_process_index",
        "local_rank",
        "slice(0",
    ]]),
    of_words(&["manual_seed("], sample_seed::drawn).with(&[&["generator="], &["rand(", "randn(", "randint("]]),
    of_words(&["logits["], shift_in_part::drops).with(&[&["logits["], &[":-1", ": -1"], &["1:]", "1 :]"], &["label"]]),
    of_words(&["roll("], shifted::rolls).with(&[&["roll("]]),
    of_collectives(counted_rounds::divided).with(&[&["all_reduce"], &["+=", "+ "]]),
    of_collectives(this_rank::sizes).with(&[
        &["len(", "size(", "shape", "numel"],
        &["all_reduce"],
        &["sum(", "matmul", "einsum", "mm(", "bincount", "_add_", " @ "],
    ]),
    of_words(&["avg_factor="], this_rank::factors).with(&[&["avg_factor="], &["reduce"]]),
    of_words(&["register_buffer"], this_rank::kept).with(&[this_rank::WRITTEN]),
    of_words(&["register_buffer", "requires_grad=false"], beside_summed::statistics).with(&[&[
        "all_reduce",
        "psum",
        "sync_",
    ]]),
    of_collectives(this_rank::partial).with(&[&["all_reduce"], &["max"], &["exp"]]),
    of_collectives(ranks::some_ranks),
    of_words(owns_none::CHOSEN, owns_none::left_out)
        .with(&[&["if not ", "if len(", "own", "mine", "my_", "local", "rank"]]),
    of_words(&["gather"], taken_in_turns::taken)
        .with(&[&["rank", "process_index", "own", "local", "part"], &["mean", "std", "var", "sum(", "max", "min"]]),
    of_words(&["gather"], columns_joined::joined).with(&[
        &["arange("],
        &["cat(", "concat(", "stack("],
        &["rank"],
        &["entropy", "loss", "criterion"],
    ]),
    of_words(only_some::FIRST, only_some::calls).with(&[only_some::ASKED]),
    of_words(&["rank", "main", "master"], only_some::decorated).where_seen(|seen| seen.communicates),
    of_names(&["new_group", "create_group"], rehearsed::groups).with(&[&["new_group", "create_group"]]),
    of_names(&["new_group"], new_groups::made).with(&[&["new_group"], &["rank", "host"]]),
    of_collectives(nothing_to_add::left).with(&[
        &["grad"],
        &["model_parallel", "mp_group", "pp_group", "pipeline", "mp_pg"],
        &["all_reduce"],
    ]),
    of_collectives(duplicated::summed).with(&[&["gather"]]),
    of_words(&["chunk(", "distribute_tensor("], packed_cut::cuts)
        .with(&[&["copy_(", "Parameter("], &["chunk(", "distribute_tensor(", "shard_"]]),
    of_collectives(tied_mean::gradients).with(&[&["avg"], &["grad"]]),
    of_collectives(own_list::sums).with(&[&["param"], &[".append("]]),
    of_words(&["get_global_rank"], global_index::indices).with(&[&["get_global_rank"], &["size"]]),
    of_words(&["_group=", "_pg="], other_axes::given).with(&[&["_group=", "_pg="]]),
    of_collectives(norm_sides::of_norms).with(&[&["inf"], &["norm"], &["all_reduce"]]),
    of_collectives(own_mesh::left_out).with(&[&["dtensor"], &["full_tensor"]]),
    of_collectives(group_root::roots).with(&[&["group", "pg"]]),
    of_words(&["backward("], share_averaged::divided).with(&[
        &["weight", "count", "num_"],
        &[" / ", "/= "],
        &["loss * "],
    ]),
    of_words(&["backward("], count_of_fewer::scaled).with(&[
        &["loss"],
        &["self."],
        &["with_context_parallel", "dp_cp"],
    ]),
    of_words(&["num_processes", "get_world_size("], all_processes::scaled).with(&[&["loss"], all_processes::SIZES]),
    of_words(&["get_worker_info"], worker_rank::given).with(&[&["get_worker_info"], &["world_size"]]),
    of_collectives(other_order::branches).with(&[&["if "], &["else"]]),
    of_collectives(other_order::roots).with(&[&["src", "dst", "broadcast"], &["rank"]]),
    of_collectives(set_order::loops).with(&[set_order::WORDS, &["for "]]),
    of_collectives(operators::as_others).with(&[&["reduce"]]),
    of_words(&["rank", "main", "master"], left_alone::loops).with(&[
        &["rank", "main", "master"],
        &["break", "return"],
        &["backward(", "reduce", "gather", "train"],
    ]),
    of_words(&["reduce"], own_data::decides).with(&[own_data::COUNTS]),
    of_words(&["backward("], own_decision::skipped).with(&[&["backward("], own_decision::TESTS]),
    of_words(&["backward("], constant_loss::returned).with(&[&["backward("]]),
    of_words(&["get_world_size("], expert_mean::divided).with(&[&["get_world_size("], expert_mean::EXPERTS, &["grad"]]),
    of_words(expert_mean::EXPERTS, expert_copies::averaged).with(&[
        &["reduceop.avg", "op=avg"],
        &["reduce"],
        &["group"],
    ]),
    of_words(expert_mean::EXPERTS, expert_copies::handed).with(&[
        &["group", "_pg"],
        &["get_world_size(", ".size()"],
        expert_mean::EXPERTS,
    ]),
    of_words(&["reduceop.avg"], expert_copies::factors).with(&[&["expert_", "moe_"], &["factor"], &["average"]]),
    of_words(&["divide", "average"], expert_copies::divided_again).with(&[
        &[".div_("],
        &["grad"],
        &["get_world_size("],
    ]),
    of_words(&["replic"], replicas_asked::meshes).with(&[&["replic"], &["shard"], &[" or "], &["mesh"]]),
    of_words(&["fully_shard("], narrow::replicas).with(&[&["fully_shard("], &["mesh"]]),
    of_words(&["register_hook("], round_hook::registered).with(&[&["register_hook("]]),
    of_collectives(clock::decided).with(&[clock::WORDS]),
    of_collectives(group_ranks::some_of_group),
    of_words(group_ranks_called::RANKS, group_ranks_called::calls).with(&[group_ranks_called::RANKS]),
    of_words(&["group", "_pg", "pg=", "mesh", "comm"], recursion::forgotten).where_seen(|seen| seen.recurs),
    of_words(&["rank"], rank_size::exchanged).with(&[rank_size::RANKS, rank_size::SIZES]),
    of_words(&[":="], comparison::bound).with(&[&[":="], comparison::NUMBERS]),
    of_words(&["_flatten_dense_tensors("], flat_unchanged::copied_back).with(&[
        &["_flatten_dense_tensors("],
        &["copy_("],
        &["zip("],
    ]),
    of_words(&["_division"], division_switch::never_asked).with(&[&["def backward"]]),
    of_names(stop_of_one::FLAGS, stop_of_one::set).with(&[&["trainer", "control"], &["zero", "rank", "main"]]),
    of_names(nodes_left_out::NODES, nodes_left_out::called).with(&[nodes_left_out::NODES, nodes_left_out::DEVICES]),
    of_words(&["init_device_mesh("], seed_dims::given).with(&[&["replicate", "shard"], &["seed", "determin", "rng"]]),
    of_words(&["data_parallel_rank", "get_local_rank("], data_seed::drawn).with(&[
        &["get_rank", ".rank"],
        &["seed", "rng", "random"],
        &["data_parallel_rank", "get_local_rank("],
    ]),
    of_words(&["shardedgradscaler("], own_scaler::groups).with(&[&["shardedgradscaler("], &["process_group="]]),
    of_words(&["clip"], unread_mesh::norms).with(&[
        &["norm("],
        &["mul_(", "clip_grads_with_norm_("],
        &["_mesh", "_group", "_pg"],
    ]),
    of_words(&["to_local"], whole_counted::sums).with(&[
        &["to_local"],
        &["norm("],
        &["tp_", "_tp", "\"tp\"", "'tp'"],
        &["grad"],
    ]),
    of_words(&["fsdp_group", "fsdp_mesh"], wrapper_size::losses).with(&[&["dp_size"], &["loss"]]),
    of_words(&["all_reduce(num_"], number_of_all::losses).with(&[&["all_reduce(num_"]]),
    of_words(&["all_gather"], local_rows::keys).with(&[&["entropy", "logits"]]),
    of_words(&["all_gather"], sibling_rows::cuts).with(&[&["features", "feats", "embed", "z_"]]),
    of_words(&["optimizer_step"], sharded_step::averages).with(&[&["optimizer_step("]]),
    of_words(&["gather_for_metrics"], metric_of_mean::gathers).with(&[&["gather_for_metrics("], &["mean("]]),
    of_words(&["distributedoptimizer("], drawn_apart::averaged).with(&[&["distributedoptimizer("], &["seed"]]),
    of_words(&["distributedoptimizer("], synchronized::stepped).with(&[&[".synchronize()"]]),
    of_words(&["dist.reduce(", "distributed.reduce("], reduced_on_one::decides),
    of_words(&["partition_spec"], kernel_spec::splits).with(&[&["partition_spec"], &["flash_attention"]]),
    of_words(&["parallel"], beside_layers::completed).with(&[&["reduce"]]).where_seen(|seen| seen.communicates),
    of_words(&["fully_shard"], unsharded_root::left).with(&[&["fully_shard("]]),
    of_words(&["async_op"], waited_later::copied).with(&[&[".wait("], &["copy_("]]),
    of_words(&["embedding(", ".weight["], rows_left::returned).with_written(rows_left::SHOWN),
    of_words(&["chunk("], shift_by_hand::joins).with(&[&["1:]", "shift"]]),
    of_words(&["roll(", "chunk("], shifted_chunks::rolls).with(&[&["1:]", "roll(", "shift"]]),
    of_words(other_cut::RANKS, other_cut::runs).with(&[other_cut::CUTS]),
    of_words(&["manual_seed("], own_weights::drawn).with(&[&["manual_seed("]]),
    of_words(&["rng_state("], own_weights::restored).with(&[&["torch.save("]]),
    of_words(&["randperm("], own_permutation::taken).with(&[&["randperm("]]),
    of_words(equal_marks::REGISTER, equal_marks::summed).with(&[&["all_reduce("]]),
    of_words(&["setattr("], mark_unasked::never).with(&[&["group"]]),
    of_words(&["all_gather"], undone_mean::losses).with(&[&["world_size", ".size("], &["loss"]]),
    of_words(&["fully_shard("], replica_norm::sums).with(&[&["all_reduce("], &["group="]]),
    of_collectives(whole_counted::of_marked).with(&[
        &[".grad"],
        &["all_reduce("],
        &["tp_", "_tp", "\"tp\"", "'tp'"],
        &["pow(", "norm", "square", "** 2", "**2"],
    ]),
    of_words(&["no_shard"], whole_handles::sums).with(&[&["all_reduce("], &["norm"], &["grad"]]),
    of_words(&["fsdp_group"], wrapper_size::losses).with(&[&["fsdp_group"], &["dp_size"], &["loss"]]),
    of_words(&["alibi"], slopes_of_all::made).with(&[&["alibi"], &["return"]]),
    of_words(&["optimizer.step("], inner_step::stepped).with(&[&["optimizer.step("], &["backward("], &["self."]]),
    of_words(&["flatparameter"], flat_parameters::tested).with(&[&["flatparameter"], &[".grad"]]),
    of_words(&["isfinite", "isinf", "isnan"], own_overflow::of_shard).with(&[&[".step("]]),
    of_words(&["non_finite_check"], own_overflow::read).with(&[&["non_finite_check"], &["found_inf"]]),
    of_words(&[" or "], comparison::always_holds).with(&[&[" or "], &["=="], comparison::TELLS]),
    of_collectives(given_guard::not_given).with(&[&["group is not none", "pg is not none", "group:", "pg:"]]),
    of_words(&["new_group("], group_of_one::made).with(&[&["new_group("], &["rank"]]),
    of_words(&["distributedsampler("], loader_length::divided).with(&[&["len("], &["/"]]),
    of_words(first_rank::FIRST, first_rank::of_other).with(&[first_rank::FIRST, &["//"]]),
];

/// The checks of single classes, which look at the whole project.
pub(super) const OF_CLASSES: &[for<'a> fn(&Lint<'a>, &Class<'a>, &mut Found)] = &[
    switch::stored,
    marks::unset,
    marks::partly,
    uneven::siblings,
    uneven::of_one_norm,
    uneven::hooked,
    uneven::biases,
    pool::shared,
    partition::unmarked,
    whole_marked::modes,
    beside_layers::unmarked,
    summed_marks::complete,
    part_beside::unmarked,
    mark_beside::left_out,
    doubled::marked_twice,
    axis_map::disagreeing,
    backwards::other_input,
    backwards::same_sizes,
    backward_group::left_out,
    override_sum::left_out,
    info_left_out::left_out,
    drawn_beside::written,
    told_norm::unmarked,
    weight_left::left_out,
    kept_neighbour::kept,
    unsummed_input::parts,
    summed_in_one::parts,
    early_return::unsummed,
    copied_first::stepped,
    unused_group::stored,
    split_step::left_out,
    unused_group::replicas,
    own_overflow::decides,
    sequence_divided::over_both,
    sequence_divided::one_of_two,
    running::apart,
    tied::weights,
    part_loss::attached,
    own_tokens::attached,
    pending::dropped,
];
