//! Checks of practice: mistakes that show in how the code is written, without types. In: the project and the rules.
//! Out: findings. Never: execution or prose. Each check is a file with one rule; each asks for evidence that contradicts the code
//! beside it, and is silent without. Source: DESIGN.md section 7 and the bugs in `corpus/bugs`.
//!
//! Reading order: `expr.rs`, `view.rs`, `found.rs`, then any check.

mod all_ranks;
mod applied_copy;
mod arity;
pub mod asked;
mod asked_group;
mod asked_tests;
mod averaged;
mod averaged_twice;
mod axis_map;
mod backward_group;
pub mod backwards;
mod beside;
mod bypassed;
mod called;
mod clock;
mod collected;
pub mod coming;
mod comparison;
pub mod concerned;
mod constant_loss;
mod copied_first;
mod copies;
mod counted_rounds;
mod counts;
mod cut;
mod cut_local;
mod cut_loss;
mod cut_parts;
mod data_sum;
mod doubled;
mod dropped_handle;
mod each_round;
mod early_return;
mod empty_part;
mod expert_mean;
pub mod expr;
mod factor;
mod first_rank;
mod fixed_source;
mod flow;
pub mod found;
mod gate;
mod gate_inverted;
mod given_guard;
mod glance;
mod global_index;
mod gradient;
mod group_argument;
mod group_buffers;
mod group_of_one;
mod group_ranks;
mod group_ranks_called;
mod group_root;
mod handed_on;
mod handles;
pub mod hints;
mod in_flight;
pub mod lapses;
mod late_hook;
mod left_alone;
mod left_dim;
mod loader_length;
mod local_gradient;
mod local_map;
mod local_norm;
mod lost;
mod lost_gradients;
mod made;
pub mod marking;
mod marks;
mod masked_rows;
mod may_sum;
mod mean_backward;
mod mean_of_own;
pub mod membership;
mod mesh_dims;
mod mesh_rank;
mod metrics;
mod misnamed;
mod mixed_mean;
mod named_axes;
mod named_experts;
mod narrow;
pub mod near;
mod never_waited;
mod new_groups;
mod no_result;
mod no_sync;
mod nones;
mod old_parameters;
mod one_buffer;
mod one_rank;
mod only_some;
mod operators;
mod order;
mod other_part;
mod outside;
mod overwritten;
mod own_decision;
mod own_group;
mod own_largest;
mod own_list;
mod own_part;
mod own_size;
mod own_statistic;
mod parameter_divided;
mod part_list;
mod part_mean;
mod part_out;
mod partition;
mod plan;
mod pool;
mod positions;
mod rank_size;
mod rank_tests;
mod ranks;
mod raw;
mod rebound;
mod recursion;
pub mod reducers;
mod rehearsed;
mod replaced;
mod round_hook;
mod sampler;
mod scheduled;
mod set_order;
mod shard_dim;
mod shard_norm;
mod shifted;
pub mod sizes;
pub mod slips;
mod split_plain;
mod stale;
mod statistic;
mod strided;
mod style_plan;
mod submodules;
mod sum_in_loss;
mod summed_scaled;
mod switch;
mod this_rank;
mod tied;
pub mod training;
mod trial;
mod uncalled;
mod uncut_buffer;
mod uneven;
mod unpaired;
mod unread_group;
mod unreduced_step;
mod unused_group;
mod unwrapped;
pub mod view;
mod weights_cut;
mod whole_input;
mod whose;
mod worker_rank;
mod world_rank;
mod wrapped;

use super::digest::Gist;
use super::finding::{Finding, FindingKind};
use super::formula::{Atom, Facts};
use super::memo::{Memo, Task, combined_equal, kept_each};
use super::settings::Settings;
use crate::ir::{Func, FuncId, FuncKind};
use crate::project::{ClassRef, FuncRef, ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::reads::{Read, note};
use crate::source::{Files, Name, Place};
use asked::{Shown, Taken};
use beside::Beside;
use found::Practice;
use glance::{Glance, Glancer};
use reducers::Reducers;
use rustc_hash::FxHashSet;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use view::View;
pub(super) use {glance::Stands, glance::are_known, lost::COPIES, order::sets, stale::SAME, switch::is_switch};

/// What a check reports: where, and what.
type Found = Vec<(Place, Practice)>;

/// A check of single functions.
type OfFunction = fn(&View<'_>, &mut Found);

/// A check of single functions, and what the text of a file shows, in lowercase, if it has anything to say of one of its functions.
#[derive(Clone, Copy)]
struct Check {
    /// One of these words.
    words: &'static [&'static str],
    /// Whether the words are names, and not parts of longer ones.
    whole: bool,
    /// Or the name of a collective.
    communicates: bool,
    /// Whether it may have something to say of a function that looks like this.
    concerns: fn(&Glance) -> bool,
    /// What the text of the function itself shows as well: of each of these one word.
    near: &'static [&'static [&'static str]],
    /// Whether those count only where they are written so, not in capitals.
    as_written: bool,
    /// Or that it looks like this.
    or_seen: fn(&Glance) -> bool,
    of: OfFunction,
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
    fn is_due(&self, seen: &Glance, shown: &Shown, at: usize, func: &Func) -> bool {
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

const OF_FUNCTIONS: &[Check] = &[
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
    of_collectives(mean_of_own::losses).with(&[mean_of_own::MASKS, &["sum"], &["/"]]),
    of_words(&[".apply("], lost::applied).with(&[&[".apply("]]),
    of_words(switch::WORDS, switch::group_choices).where_seen(|seen| seen.is_switched),
    of_words(&["to_local", "full_tensor"], local_gradient::bare).with(&[&["to_local", "full_tensor"]]),
    of_words(cut_local::WORDS, cut_local::cut_off).with(&[cut_local::WORDS]),
    of_words(averaged::REGISTER, averaged::hooks).with(&[averaged::REGISTER]),
    of_words(&["partial"], part_out::parts).with(&[&["to_local", "full_tensor"]]),
    of_words(&["local_map"], local_map::regions),
    of_words(style_plan::WORDS, style_plan::norms).with(&[style_plan::WORDS]).where_seen(|seen| seen.plans),
    of_names(local_map::ROUTERS, local_map::styles)
        .with(&[local_map::ROUTERS])
        .where_seen(|seen| seen.plans || seen.renames),
    of_words(mesh_dims::WORDS, mesh_dims::counts).with(&[mesh_dims::WORDS]).or_seen(|seen| seen.renames),
    of_words(shard_dim::WORDS, shard_dim::dims).with(&[shard_dim::WORDS]),
    of_words(&[".step("], unreduced_step::steps).with(&[&[".step("], unreduced_step::SPLITS]),
    of_words(&[".step("], unreduced_step::steps_of_loaders).with(&[&[".step("], metrics::COUNTS]),
    of_names(narrow::WRAPPERS, narrow::wrappers).with(&[narrow::WRAPPERS, &["process_group", "mesh", "**"]]),
    of_collectives(own_group::left_out),
    of_collectives(group_buffers::made_for_group),
    of_words(&["mask"], masked_rows::summed)
        .with(&[&["mask"], &["embedding(", "index_select(", "gather("]])
        .where_seen(|seen| seen.communicates),
    of_collectives(unread_group::unread),
    of_words(&["group=none", "mesh=none", "= none"], group_argument::left_out).where_seen(|seen| seen.leaves_groups),
    of_names(&["src", "dst", "broadcast"], fixed_source::roots).where_seen(|seen| seen.communicates),
    of_words(&["distributedsampler("], sampler::replicas).with(&[&["distributedsampler("]]),
    of_names(&["get_rank"], own_group::global_rank).where_seen(|seen| seen.asks_rank),
    of_names(&["get_rank"], world_rank::of_other_group).where_seen(|seen| seen.asks_rank),
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
    of_collectives(mixed_mean::branches).with(&[&["avg"], &["grad"]]),
    of_words(&["allreduce"], named_experts::kept).with(&[&["getattr("], &["expert", "ep", "moe"]]),
    of_collectives(unused_group::swapped).with(&[&["expert"]]),
    of_collectives(copies::summed).with(&[&["grad"], copies::SPLIT]),
    of_words(&["mesh_dim_names"], left_dim::wrappers),
    of_names(&["sequenceparallel"], whole_input::embeddings),
    of_names(&["sequenceparallel"], whole_input::residuals),
    of_collectives(own_part::sums),
    of_words(&["fully_shard"], factor::inner_mesh).with(&[&["fully_shard"]]),
    of_words(&["reduction="], factor::mean_not_undone).with(&[&["reduction="]]),
    of_words(&["cp_", "_cp", "context_parallel"], factor::auxiliary).with(&[factor::RESULTS]),
    of_words(&["cp_", "_cp", "context_parallel"], factor::whatever_the_flag).with(&[factor::RESULTS]),
    of_words(&["zip("], copied_first::in_function).with(&[&[".grad", "main_grad"], &["reduce"]]),
    of_names(&["distributeddataparallel", "ddp"], doubled::wrapped_parts).with(&[&["process_group"]]),
    of_words(&["context_parallel("], uncut_buffer::buffers).with(&[&["buffers"]]),
    of_words(&["n_microbatches", "schedule"], scheduled::losses).with(&[&["loss_fn"]]),
    of_words(&["to_empty(", "assign=true"], replaced::hooks),
    of_words(old_parameters::REPLACES, old_parameters::optimizers).with(&[&["optim", "adam", "sgd"]]),
    of_words(old_parameters::REPLACES, old_parameters::marks).where_seen(|seen| seen.wraps),
    of_words(old_parameters::REPLACES, old_parameters::meshes)
        .with(&[&["parallelize_module"]])
        .where_seen(|seen| seen.wraps),
    of_collectives(averaged_twice::means).with(&[&["avg"], &["world_size"]]),
    of_collectives(own_largest::sums).with(&[&["exp("], &["max("]]),
    of_collectives(part_mean::means).with(&[&[".mean("], &[".sum("], &["MAX"]]),
    of_collectives(rebound::variables).with(&[&["unflatten", "split("]]),
    of_words(&["arange("], positions::restarted).with(&[&["arange("], &["pos"], &["rank"]]),
    of_words(&[".apply("], applied_copy::written).with(&[&[".apply("]]),
    of_collectives(gate_inverted::sums).with(&[&["grad"], &["sequence_parallel", "mode"]]),
    of_collectives(mean_backward::of_means).with(&[&["mean("], &["world_size"]]),
    of_words(&["add_("], overwritten::gradients).with(&[&["add_("], &["copy_("], &["grad"]]),
    of_words(&["_hook("], late_hook::registered).with(&[
        &["_hook("],
        &["for "],
        &["reduce", "gather", "broadcast", "scatter"],
    ]),
    of_collectives(parameter_divided::divided).with(&[&[".grad"], &["/=", ".div_("], &["all_reduce"]]),
    of_words(&["async"], dropped_handle::calls).with(&[
        &["async"],
        &["return"],
        &["reduce", "gather", "alltoall", "all_to_all"],
    ]),
    of_words(&["autograd"], handed_on::left_out).with(&[&["def forward"], &["ctx."]]),
    of_words(&["autograd"], handed_on::around).with(&[&["def forward"], &["ctx."]]),
    of_collectives(own_statistic::met).with(&[&["mean(", "sum("], &["exp(", "pow(", "square(", " * ", "**"]]),
    of_words(&["no_grad"], weights_cut::gathered).with(&[&["no_grad"], weights_cut::WEIGHTS, &["else"]]),
    of_words(&["schedule"], group_argument::of_stages).with(&[&["schedule"], &["step("]]),
    of_collectives(nones::inverted),
    of_words(&["world"], one_rank::alone).with(&[&["world"], &["reduce", "gather", "broadcast"]]),
    of_collectives(statistic::squares).with(&[&["sqrt("]]),
    of_collectives(strided::gradients).with(&[&[".grad."]]),
    of_words(&["divide_factor(1"], summed_scaled::losses).with(&[&["loss"], &["world", "dp_size"]]),
    of_words(&["register_hook("], summed_scaled::hooked).with(&[&["getattr("], &["world_size("]]),
    of_collectives(handles::unwaited),
    of_collectives(handles::written).with(&[&["async_op"]]),
    of_collectives(one_buffer::lists).with(&[&["gather", "all_to_all"], &["*"]]),
    of_collectives(in_flight::changed).with(&[&["async_op"], &["grad"]]),
    of_collectives(never_waited::lost).with(&[&["async_op"]]),
    of_collectives(never_waited::started).with(&[&["async_op"], &["return"]]),
    of_words(&["grad_norm"], shard_norm::clipped).with(&[&["norm"]]),
    of_words(&["clip_grad_norm"], part_list::clipped).with(&[&["clip_grad_norm"], &["self"]]),
    of_words(&["no_sync", "grad_sync", "gradient_sync"], no_sync::steps).with(&[&["step("]]),
    of_words(&["grad_sync"], no_sync::late_flag),
    of_words(&["ignored_"], outside::ignored).with(&[&["ignored_"]]).where_seen(|seen| seen.wraps),
    of_words(&[".module"], bypassed::in_class).with_written(&[&[".module"]]),
    of_words(&[".module"], bypassed::around).with(&[&[".module"]]).where_seen(|seen| seen.wraps),
    of_words(unwrapped::UNWRAPS, unwrapped::around).with(&[&[".step("]]),
    of_words(&[".module"], unwrapped::in_helper).with(&[&[".module"], &[".step("]]),
    of_words(&["torch.optim", "optim."], outside::attached).where_seen(|seen| seen.puts),
    of_words(&["to_local", "local_grad"], local_norm::roots),
    of_words(&["sqrt", "norm"], local_norm::roots_of_marked).with(&[&[".grad"], &["rank"]]),
    of_words(&["to_local"], local_norm::partial),
    of_words(&["recv", "rotat", "ring_", "send_"], stale::arrivals).where_seen(|seen| seen.passes_on),
    OF_COUNTS,
    of_collectives(own_size::kept_counts).with(&[&["self."], &["/"]]),
    of_collectives(own_size::divisors).with(&[own_size::MATCHES, own_size::SIZES, &["/", "div"]]),
    of_words(cut_parts::WORDS, cut_parts::means).with(&[cut_parts::WORDS, &["data_parallel_group"]]),
    of_words(&["roll("], shifted::rolls).with(&[&["roll("]]),
    of_collectives(counted_rounds::divided).with(&[&["all_reduce"], &["+=", "+ "]]),
    of_collectives(this_rank::sizes).with(&[
        &["len(", "size(", "shape", "numel"],
        &["all_reduce"],
        &["sum(", "matmul", "einsum", "mm(", "bincount", "_add_", " @ "],
    ]),
    of_words(&["avg_factor="], this_rank::factors).with(&[&["avg_factor="], &["reduce"]]),
    of_words(&["register_buffer"], this_rank::kept).with(&[&["_("]]),
    of_collectives(this_rank::partial).with(&[&["all_reduce"], &["max"], &["exp"]]),
    of_collectives(ranks::some_ranks),
    of_words(&["rank", "main", "master"], only_some::calls).with(&[&["rank", "main", "master"]]),
    of_words(&["rank", "main", "master"], only_some::decorated).where_seen(|seen| seen.communicates),
    of_names(&["new_group", "create_group"], rehearsed::groups).with(&[&["new_group", "create_group"]]),
    of_names(&["new_group"], new_groups::made).with(&[&["new_group"], &["rank", "host"]]),
    of_collectives(own_list::sums).with(&[&["param"], &[".append("]]),
    of_words(&["get_global_rank"], global_index::indices).with(&[&["get_global_rank"], &["size"]]),
    of_collectives(group_root::roots).with(&[&["group", "pg"]]),
    of_words(&["get_worker_info"], worker_rank::given).with(&[&["get_worker_info"], &["world_size"]]),
    of_collectives(set_order::loops).with(&[set_order::WORDS, &["for "]]),
    of_collectives(operators::as_others).with(&[&["reduce"]]),
    of_words(&["rank", "main", "master"], left_alone::loops).with(&[
        &["rank", "main", "master"],
        &["break", "return"],
        &["backward(", "reduce", "gather", "train"],
    ]),
    of_words(&["backward("], own_decision::skipped).with(&[&["backward("], own_decision::TESTS]),
    of_words(&["backward("], constant_loss::returned).with(&[&["backward("]]),
    of_words(&["get_world_size("], expert_mean::divided).with(&[&["get_world_size("], expert_mean::EXPERTS, &["grad"]]),
    of_words(&["fully_shard("], narrow::replicas).with(&[&["fully_shard("], &["mesh"]]),
    of_words(&["register_hook("], round_hook::registered).with(&[&["register_hook("]]),
    of_collectives(clock::decided).with(&[clock::WORDS]),
    of_collectives(group_ranks::some_of_group),
    of_words(group_ranks_called::RANKS, group_ranks_called::calls).with(&[group_ranks_called::RANKS]),
    of_words(&["group", "_pg", "pg=", "mesh", "comm"], recursion::forgotten).where_seen(|seen| seen.recurs),
    of_words(&["rank"], rank_size::exchanged).with(&[rank_size::RANKS, rank_size::SIZES]),
    of_words(&[":="], comparison::bound).with(&[&[":="], comparison::NUMBERS]),
    of_words(&[" or "], comparison::always_holds).with(&[&[" or "], &["=="], comparison::TELLS]),
    of_collectives(given_guard::not_given).with(&[&["group is not none", "pg is not none", "group:", "pg:"]]),
    of_words(&["new_group("], group_of_one::made).with(&[&["new_group("], &["rank"]]),
    of_words(&["distributedsampler("], loader_length::divided).with(&[&["len("], &["/"]]),
    of_words(first_rank::FIRST, first_rank::of_other).with(&[first_rank::FIRST, &["//"]]),
];

/// The checks of single classes, which look at the whole project.
const OF_CLASSES: &[for<'a> fn(&Lint<'a>, &Class<'a>, &mut Found)] = &[
    switch::stored,
    marks::unset,
    marks::partly,
    uneven::siblings,
    uneven::of_one_norm,
    uneven::hooked,
    uneven::biases,
    pool::shared,
    partition::unmarked,
    doubled::marked_twice,
    axis_map::disagreeing,
    backwards::other_input,
    backwards::same_sizes,
    backward_group::left_out,
    early_return::unsummed,
    copied_first::stepped,
    unused_group::stored,
    tied::weights,
];

/// The checks of single functions that look at the whole project.
const IN_PROJECT: &[for<'a> fn(&Lint<'a>, &View<'a>, &mut Found)] = &[
    cut::cuts,
    cut_loss::losses,
    sum_in_loss::sums,
    cut_loss::trained,
    cut_loss::gates,
    split_plain::splits,
    order::order,
    data_sum::steps,
    uncalled::finalisers,
    doubled::twice,
    doubled::wrapped,
    doubled::parts,
    doubled::parts_of_layers,
    gate::gates,
];

/// Words that the text of a file holds if these checks have anything to say of it.
const COMMUNICATES: &[&str] = &["all_reduce", "all_gather", "all_to_all", "reduce_scatter", "backward()", "broadcast"];

/// What checks of classes see.
pub struct Lint<'a> {
    project: &'a Project,
    rules: &'a RuleBook,
    files: &'a Files,
    settings: &'a Settings,
    /// What the texts show.
    taken: &'a Taken,
    /// What all functions read and mark.
    sums: Arc<Sums>,
    /// Whether the text of each module says that its models are only served, once somebody asked.
    served: Vec<OnceLock<bool>>,
    /// The functions of each module that have decorators, once somebody asked.
    decorated: Vec<OnceLock<FxHashSet<FuncId>>>,
    /// The marks that reducers ask for, once somebody asked.
    asked_marks: OnceLock<FxHashSet<Name>>,
}

/// A class that is checked.
struct Class<'a> {
    at: ClassRef,
    /// Whether the text of its file shows switches, and maps of checkpoints.
    switches: bool,
    maps: bool,
    /// What the checks of its module share.
    beside: Rc<Beside<'a>>,
    /// Its constructor, once somebody asked, and whether that may mark parameters.
    init: OnceCell<Option<View<'a>>>,
    marks: OnceCell<bool>,
}

impl<'a> Class<'a> {
    fn init(&self, lint: &Lint<'a>) -> Option<&View<'a>> {
        self.init.get_or_init(|| lint.constructor(self.at)).as_ref()
    }

    /// Its constructor, if that may mark parameters.
    fn marking_init(&self, lint: &Lint<'a>) -> Option<&View<'a>> {
        let may = *self.marks.get_or_init(|| glance::may_mark(lint, self.at));
        if may { self.init(lint) } else { None }
    }
}

/// What the functions of a project read and mark.
#[derive(Default, PartialEq)]
struct Sums {
    reads: switch::Reads,
    marks: marks::Marks,
    /// Something that may sum gradients in a way that is not followed is named.
    wraps: bool,
}

/// What is seen in the functions of one module.
struct OfModule {
    found: Found,
    sums: Arc<Sums>,
}

impl<'a> Lint<'a> {
    fn view(&self, at: FuncRef) -> View<'a> {
        View::new(self.project, self.rules, self.files, at)
    }

    fn reducers(&self) -> &'a Reducers {
        self.settings.reducers()
    }

    fn sums(&self) -> &Sums {
        note(|| Read::Lint);
        &self.sums
    }

    fn reads(&self) -> &switch::Reads {
        &self.sums().reads
    }

    fn marks(&self) -> &marks::Marks {
        &self.sums().marks
    }

    fn constructor(&self, class: ClassRef) -> Option<View<'a>> {
        marks::constructor(self, class)
    }

    fn is_autograd(&self, class: ClassRef) -> bool {
        self.settings.statics.external_bases(class).any(|b| self.rules.autograd_base(b))
    }

    /// Whether nothing outside the project reads attributes of a class: its bases there are modules and functions of torch.
    fn may_be_complete(&self, class: ClassRef) -> bool {
        self.settings.statics.external_bases(class).all(|b| b.starts_with("torch."))
    }
}

/// Everything found in a project without execution, in the order of its modules.
pub struct Practices<'a> {
    lint: Lint<'a>,
    found: Found,
    memo: Option<&'a Memo>,
}

impl Sums {
    fn joined(parts: &[Arc<Sums>]) -> Sums {
        let mut out = Sums::default();
        for part in parts {
            out.reads.join(&part.reads);
            out.marks.join(&part.marks);
            out.wraps |= part.wraps;
        }
        out
    }
}

impl<'a> Practices<'a> {
    pub fn new(
        project: &'a Project,
        rules: &'a RuleBook,
        files: &'a Files,
        settings: &'a Settings,
        taken: &'a Taken,
        memo: Option<&'a Memo>,
    ) -> Practices<'a> {
        let modules: Vec<ModuleId> = project.modules.ids().collect();
        let parts =
            kept_each(memo, &modules, Task::Practice, |module| of_functions(project, rules, files, taken, module));
        let mut found: Found = parts.iter().flat_map(|part| part.found.iter().cloned()).collect();
        let changes = |a: &Sums, b: &Sums| if a == b { Vec::new() } else { vec![Read::Lint] };
        let sums = parts.iter().map(|part| part.sums.clone()).collect();
        let sums = combined_equal(memo, "practice", sums, |parts| Sums::joined(&parts), changes);
        let served = project.modules.ids().map(|_| OnceLock::new()).collect();
        let decorated = project.modules.ids().map(|_| OnceLock::new()).collect();
        let lint =
            Lint { project, rules, files, settings, taken, sums, served, decorated, asked_marks: OnceLock::new() };
        let of_classes = kept_each(memo, &modules, Task::Classes, |module| of_classes(&lint, module));
        found.extend(of_classes.iter().flat_map(|part| part.iter().cloned()));
        marks::unasked(&lint, &modules, memo, &mut found);
        misnamed::misnamed(&lint, &mut found);
        let against = kept_each(memo, &modules, Task::Against, |module| {
            let mut out = Vec::new();
            for class in project.modules[module].ir.classes.ids() {
                marks::against(&lint, ClassRef { module, class }, &mut out);
            }
            out
        });
        found.extend(against.iter().flat_map(|part| part.iter().cloned()));
        Practices { lint, found, memo }
    }

    /// The findings. `told`: what execution has found.
    pub fn findings(self, told: &[Finding]) -> Vec<Finding> {
        let arities = arities(&self.lint, told, self.memo);
        // Of a parameter that execution has found without a mark, what its sibling has says the same again.
        let unmarked =
            |place: Place| told.iter().any(|f| f.kind.unmarked().is_some() && f.kind.unmarked_source() == Some(place));
        let again = |(place, practice): &(Place, Practice)| {
            matches!(practice, Practice::SiblingNotMarked { .. }) && unmarked(*place)
        };
        let found = self.found.into_iter().filter(|found| !again(found)).map(|(place, practice)| {
            let when = practice.when();
            restricted(Finding::everywhere(place, FindingKind::Practice(practice)), &when)
        });
        found.chain(arities).collect()
    }
}

/// Whether a check will look at the statements of a function, as far as it shows without the rest of the project.
pub fn looks_at(func: &Func, gist: &Gist, shown: &Shown, rules: &RuleBook) -> bool {
    let is_forward = || func.class.is_some() && func.name == "forward";
    let may = |name: &Name| rules.may_communicate(name);
    let communicates =
        gist.calls_variable || gist.members_called().any(|(name, _)| may(name)) || gist.names_called().any(may);
    let applies = || gist.members_called().any(|(name, _)| name == "apply");
    let may_reduce = || {
        let names = gist.names_called().chain(gist.members_called().map(|(name, _)| name));
        communicates || names.into_iter().any(|name| reducers::may_name(name))
    };
    let due = || {
        let seen = Glance::alone(func, gist, shown.communicates && communicates);
        let mut checks = OF_FUNCTIONS.iter().enumerate().zip(&shown.checks).filter(|(_, asked)| **asked);
        checks.any(|((at, check), _)| check.is_due(&seen, shown, at, func))
    };
    shown.gradients.inside(func.span) && may_reduce()
        || gist.reads_switch && shown.has_switch(func.span)
        || shown.in_project && is_forward() && (communicates || applies())
        || due()
}

fn of_functions(project: &Project, rules: &RuleBook, files: &Files, taken: &Taken, module: ModuleId) -> OfModule {
    let (mut found, mut sums) = (Found::new(), Sums::default());
    let text = files[project.file(module)].whole();
    let (shown, digest) = (taken.asked.shown(module, text), taken.digests.of(project, module));
    sums.wraps = shown.wraps;
    digest.assigned.keys().for_each(|name| sums.marks.add(name));
    let checks: Vec<(usize, &Check)> =
        OF_FUNCTIONS.iter().enumerate().zip(&shown.checks).filter(|(_, asked)| **asked).map(|(c, _)| c).collect();
    let mut glancer = Glancer::new(project, rules, module, shown.communicates);
    let beside = Rc::new(Beside::default());
    for ((func, f), gist) in project.modules[module].ir.funcs.iter_enumerated().zip(&digest.funcs) {
        if f.kind == FuncKind::ClassBody {
            continue;
        }
        let seen = glancer.look(f, gist, shown.has_switch(f.span));
        let mut due = checks.iter().filter(|(at, check)| check.is_due(&seen, shown, *at, f)).peekable();
        if due.peek().is_none() && !seen.switches && !(seen.set_by_name && shown.set_by_name) {
            continue;
        }
        let view = View::new(project, rules, files, FuncRef { module, func }).with(&Rc::downgrade(&beside));
        if seen.switches {
            sums.reads.add(&view);
        }
        if shown.set_by_name && seen.set_by_name {
            sums.marks.add_named(&view);
        }
        for (_, check) in due {
            (check.of)(&view, &mut found);
        }
    }
    OfModule { found, sums: Arc::new(sums) }
}

fn of_classes<'a>(lint: &Lint<'a>, module: ModuleId) -> Found {
    let mut out = Vec::new();
    let text = lint.files[lint.project.file(module)].whole();
    let shown = lint.taken.asked.shown(module, text);
    let ir = &lint.project.modules[module].ir;
    let beside = Rc::new(Beside::default());
    for class in ir.classes.ids() {
        let at = ClassRef { module, class };
        let class = Class {
            at,
            switches: !shown.switches.is_empty(),
            maps: shown.maps,
            beside: beside.clone(),
            init: OnceCell::new(),
            marks: OnceCell::new(),
        };
        for check in OF_CLASSES {
            check(lint, &class, &mut out);
        }
    }
    if shown.plans {
        plan::plans(lint, module, &mut out);
    }
    if !shown.in_project {
        return out;
    }
    let digest = lint.taken.digests.of(lint.project, module);
    let mut glancer = Glancer::new(lint.project, lint.rules, module, true);
    for ((func, f), gist) in ir.funcs.iter_enumerated().zip(&digest.funcs) {
        let at = FuncRef { module, func };
        if f.kind == FuncKind::ClassBody || !in_project(lint, at, (f, gist), &mut glancer) {
            continue;
        }
        let view = lint.view(at).with(&Rc::downgrade(&beside));
        for check in IN_PROJECT {
            check(lint, &view, &mut out);
        }
    }
    out
}

/// Whether checks that look at the whole project may have something to say of a function.
fn in_project<'a>(lint: &Lint<'a>, at: FuncRef, (f, gist): (&Func, &'a Gist), glancer: &mut Glancer<'a>) -> bool {
    let text = lint.files[lint.project.file(at.module)].slice(f.span);
    let says = |word: &str| text.contains(word);
    let trains = says("backward") && (says("backward(") || says("step"));
    let mut gates = || says("getattr") && (says("register_") || glancer.communicates(gist));
    let loses = says("loss") || says("cross_entropy") || lint.rules.loss_methods().contains(&f.name);
    let class = f.class.filter(|_| f.name == "forward").map(|class| ClassRef { module: at.module, class });
    trains
        || loses
        || says("all_reduce")
        || gates()
        || lint.reducers().all.iter().any(|r| r.func == at)
        || class.is_some() && (cut_loss::is_loss(f) || glancer.may_cut(lint, class, gist))
}

/// Backwards that return the wrong number of gradients, those that execution has not seen.
fn arities(lint: &Lint<'_>, told: &[Finding], memo: Option<&Memo>) -> Vec<Finding> {
    let mut found = Vec::new();
    let modules: Vec<ModuleId> = lint.project.modules.ids().collect();
    let parts = kept_each(memo, &modules, Task::Arities, |module| {
        let mut out = Vec::new();
        for class in lint.project.modules[module].ir.classes.ids() {
            arity::arity(lint, ClassRef { module, class }, &mut out);
        }
        out
    });
    found.extend(parts.iter().flat_map(|part| part.iter().cloned()));
    found.retain(|(place, kind)| !arity::is_told(told, *place, kind));
    found.into_iter().map(|(place, kind)| Finding::everywhere(place, kind)).collect()
}

/// A finding that holds where flags have these values.
fn restricted(mut finding: Finding, when: &[(Name, bool)]) -> Finding {
    let atom = |name: &Name| Atom::True(name.clone());
    if !when.is_empty() {
        finding.worlds = vec![when.iter().fold(Facts::default(), |f, (name, holds)| f.with(atom(name), *holds))];
        let against = |(name, holds): &(Name, bool)| Facts::default().with(atom(name), !holds);
        finding.silent_worlds = when.iter().map(against).collect();
    }
    finding
}
