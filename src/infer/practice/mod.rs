//! Checks of practice: mistakes that show in how the code is written, without types. In: the project and the rules.
//! Out: findings. Never: execution or prose. Each check is a file with one rule; each asks for evidence that contradicts the code
//! beside it, and is silent without. Source: DESIGN.md section 7 and the bugs in `corpus/bugs`.
//!
//! Reading order: `expr.rs`, `view.rs`, `found.rs`, then any check.

mod affine_twice;
mod all_processes;
mod all_ranks;
mod applied_copy;
pub mod arity;
pub mod asked;
mod asked_group;
mod asked_norm;
mod asked_tests;
mod averaged;
mod averaged_twice;
mod axis_map;
mod backward_group;
pub mod backwards;
mod beside;
mod beside_copy;
mod beside_layers;
mod beside_summed;
mod bypassed;
mod called;
mod checks;
mod class_marks;
mod clip_guard;
mod clock;
mod collected;
mod columns_joined;
pub mod coming;
mod comparison;
mod complete_grads;
pub mod concerned;
mod constant_loss;
mod cooldown;
mod copied_first;
mod copies;
mod count_of_fewer;
mod counted_rounds;
mod counts;
mod cut;
mod cut_local;
mod cut_loss;
mod cut_parts;
mod data_seed;
mod data_sum;
mod divided;
mod divided_again;
mod division_switch;
mod doubled;
mod drawn_apart;
mod drawn_beside;
mod dropped_handle;
mod duplicated;
mod each_round;
mod early_return;
mod empty_part;
mod epochs;
mod equal_marks;
mod expert_broadcast;
mod expert_copies;
mod expert_mean;
pub mod expr;
mod factor;
mod finaliser_off;
mod first_rank;
mod fixed_source;
mod flat_parameters;
mod flat_unchanged;
mod flow;
mod foreign_targets;
pub mod found;
mod gate;
mod gate_inverted;
mod gather_averaged;
mod given_guard;
mod glance;
mod global_index;
mod grad_label;
mod gradient;
mod group_argument;
mod group_buffers;
mod group_of_one;
mod group_ranks;
mod group_ranks_called;
mod group_root;
mod half_ratio;
mod hand_softmax;
mod handed_on;
mod handles;
mod held_scaled;
pub mod hidden_change;
pub mod hidden_sum;
pub mod hints;
mod hooks_of_layers;
mod in_flight;
mod info_left_out;
mod inner_step;
mod kept_count;
mod kept_handles;
mod kept_neighbour;
mod kernel_spec;
pub mod lapses;
mod late_hook;
mod late_shared;
mod left_alone;
mod left_dim;
mod loader_length;
mod local_gradient;
mod local_map;
mod local_norm;
mod local_rows;
mod lost;
mod lost_gradients;
mod made;
mod mark_beside;
mod mark_unasked;
mod marked_elsewhere;
pub mod marking;
mod marks;
mod masked_rows;
mod master_norm;
mod may_sum;
mod mean_backward;
mod mean_of_own;
mod mean_of_variances;
pub mod membership;
mod mesh_dims;
mod mesh_rank;
mod mesh_ranks;
mod metric_of_mean;
mod metrics;
mod mirrored;
mod misnamed;
mod mixed_mean;
mod named_axes;
mod named_experts;
mod named_gradients;
mod narrow;
pub mod near;
mod needed;
mod never_synced;
mod never_waited;
mod new_groups;
mod no_forward;
mod no_result;
mod no_sync;
mod node_rank;
mod nodes_left_out;
mod nones;
mod norm_classes;
mod norm_of_each;
mod norm_sides;
mod norm_squared;
mod nothing_to_add;
mod number_of_all;
mod old_parameters;
pub mod omissions;
mod one_buffer;
mod one_path;
mod one_rank;
mod only_read;
mod only_some;
mod operators;
mod order;
mod order_ignored;
mod other_axes;
mod other_cut;
mod other_order;
mod other_part;
mod outside;
mod override_sum;
mod overwritten;
mod own_data;
mod own_decision;
mod own_divisor;
mod own_group;
mod own_labels;
mod own_largest;
mod own_list;
mod own_mesh;
mod own_overflow;
mod own_parameters;
mod own_part;
mod own_permutation;
mod own_rows;
mod own_scaler;
mod own_size;
mod own_statistic;
mod own_tokens;
mod own_weights;
mod owns_none;
mod packed_cut;
mod parameter_divided;
mod part_beside;
mod part_by_whole;
mod part_list;
mod part_loss;
mod part_mean;
mod part_of_width;
mod part_out;
mod partition;
mod pending;
mod piece_flow;
mod piece_ops;
mod piece_values;
pub mod pieces;
mod plain_input;
mod plan;
mod plan_heads;
mod plan_pairs;
mod pool;
mod positions;
mod quiet;
mod rank_size;
mod rank_tests;
mod ranks;
mod ratio_of_counts;
mod raw;
mod rebound;
mod recursion;
mod reduced_on_one;
pub mod reducers;
mod reducing;
mod region_grads;
mod rehearsed;
mod replaced;
mod replica_norm;
mod replicas_asked;
mod round_hook;
mod rounds_divided;
mod rounds_weight;
pub mod routers;
mod rows_left;
mod ruled_out;
mod running;
mod sample_seed;
mod sampler;
mod sampler_seed;
mod scheduled;
mod seed_dims;
mod sequence_divided;
mod set_order;
mod shard_dim;
mod shard_norm;
mod sharded_step;
mod shards_asked;
mod share_averaged;
mod shared_bias;
mod shift_by_hand;
mod shift_in_part;
mod shifted;
mod shifted_chunks;
mod sibling_marks;
mod sibling_rows;
pub mod sizes;
pub mod slips;
mod slopes_of_all;
mod split_plain;
mod split_step;
mod spread_of_part;
mod stage_norm;
mod stale;
mod stale_block;
mod statistic;
mod stop_of_one;
mod strided;
mod style_input;
mod style_plan;
mod submodules;
mod sum_in_loss;
mod summed_in_one;
mod summed_marks;
mod summed_scaled;
mod switch;
mod synchronized;
mod taken_grads;
mod taken_in_turns;
mod takes;
mod this_rank;
mod tied;
mod tied_mean;
mod told_norm;
pub mod training;
mod trial;
mod two_norms;
mod uncalled;
mod uncut_buffer;
mod undone_mean;
mod uneven;
mod unfilled;
mod unfold;
mod unpaired;
mod unread_block;
mod unread_count;
mod unread_group;
mod unread_mesh;
mod unrecorded;
mod unreduced_step;
mod unsharded_root;
pub mod unshared;
mod unsummed_input;
mod unused_group;
mod unwrapped;
mod variances_weighted;
pub mod view;
mod views_apart;
mod waited_later;
mod weight_left;
mod weights_cut;
mod whole_bias;
mod whole_counted;
mod whole_handles;
mod whole_input;
mod whole_marked;
mod whose;
mod wide_buffer;
mod worker_rank;
mod world_offset;
mod world_rank;
mod wrapped;
mod wrapper_size;

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
use checks::{Check, OF_CLASSES, OF_FUNCTIONS};
use found::Practice;
use glance::{Glance, Glancer};
use reducers::Reducers;
use rustc_hash::FxHashSet;
use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use view::View;
pub(super) use {glance::Stands, glance::are_known, lost::COPIES, order::sets, stale::SAME, switch::is_switch};

/// What a check reports: where, and what.
type Found = Vec<(Place, Practice)>;

/// A check of single functions.
type OfFunction = fn(&View<'_>, &mut Found);

/// The checks of single functions that look at the whole project.
const IN_PROJECT: &[for<'a> fn(&Lint<'a>, &View<'a>, &mut Found)] = &[
    cut::cuts,
    cut_loss::losses,
    sum_in_loss::sums,
    cut_loss::trained,
    cut_loss::gates,
    split_plain::splits,
    split_plain::inputs,
    split_plain::computed,
    order::order,
    data_sum::steps,
    uncalled::finalisers,
    never_synced::wrappers,
    never_synced::siblings,
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
    /// What its functions mark, once somebody asked.
    own_marks: OnceCell<Option<class_marks::ClassMarks<'a>>>,
}

impl<'a> Class<'a> {
    fn init(&self, lint: &Lint<'a>) -> Option<&View<'a>> {
        self.init.get_or_init(|| lint.constructor(self.at)).as_ref()
    }

    fn own_marks(&self, lint: &Lint<'a>) -> Option<&class_marks::ClassMarks<'a>> {
        self.own_marks.get_or_init(|| class_marks::of(lint, self)).as_ref()
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
    failed: Vec<FuncRef>,
}

/// What is seen in its classes.
#[derive(Default)]
struct OfClasses {
    found: Found,
    failed: Vec<FuncRef>,
}

/// Runs a check; one that fails itself leaves what was found before it, and is told of the function, but ends nothing.
fn guarded(at: Option<FuncRef>, found: &mut Found, failed: &mut Vec<FuncRef>, check: impl FnOnce(&mut Found)) {
    let before = found.len();
    if catch_unwind(AssertUnwindSafe(|| check(found))).is_err() {
        found.truncate(before);
        failed.extend(at.filter(|at| failed.last() != Some(at)));
    }
}

impl<'a> Lint<'a> {
    fn view(&self, at: FuncRef) -> View<'a> {
        View::new(self.project, self.rules, self.files, at)
    }

    /// The functions of the file of a class, and of those that say its name.
    fn naming(&self, class: ClassRef) -> impl Iterator<Item = View<'a>> + '_ {
        let name = &self.project.class(class).name;
        let says =
            move |module: &ModuleId| *module == class.module || self.files.says(self.project.file(*module), name);
        let of = |module| self.project.modules[module].ir.funcs.ids().map(move |func| FuncRef { module, func });
        self.project.modules.ids().filter(says).flat_map(of).map(|at| self.view(at))
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
    /// Functions at which a check itself failed.
    pub failed: Vec<FuncRef>,
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
        found.extend(of_classes.iter().flat_map(|part| part.found.iter().cloned()));
        let failed = parts.iter().flat_map(|part| &part.failed).chain(of_classes.iter().flat_map(|part| &part.failed));
        let failed = failed.copied().collect();
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
        Practices { lint, found, failed, memo }
    }

    /// Leaves out what is wrong with gradients alone, where none are recorded, and what a check of keys says better.
    pub fn settle(&self, told: &mut Vec<Finding>) {
        let around = |place: Place| self.lint.project.function_at(place);
        let keys: Vec<FuncRef> =
            self.found.iter().filter_map(|(_, practice)| practice.scores_keys()).filter_map(around).collect();
        let again = |finding: &Finding| {
            finding.kind.is_mixed() && around(finding.place).is_some_and(|function| keys.contains(&function))
        };
        told.retain(|finding| !(finding.kind.is_of_gradients() && unrecorded::is_idle(&self.lint, finding.place)));
        // A model that says that it is not in training takes no gradients.
        let trains = |facts: &Facts| facts.get(&Atom::True(Name::from(TRAINING))) != Some(false);
        let all = std::mem::take(told);
        let kept = |finding: Finding| match finding.kind.is_of_gradients() {
            true => finding.within(trains),
            false => Some(finding),
        };
        told.extend(all.into_iter().filter_map(kept));
        if !keys.is_empty() {
            told.retain(|finding| !again(finding));
        }
    }

    /// The findings. `told`: what execution has found.
    pub fn findings(self, told: &[Finding]) -> Vec<Finding> {
        let arities = arities(&self.lint, told, self.memo);
        // Of a parameter that execution has found without a mark, what its sibling has says the same again.
        let sources = || told.iter().filter(|f| f.kind.unmarked().is_some()).filter_map(|f| f.kind.unmarked_source());
        // `self.norm = nn.RMSNorm(dim)`: the attribute, and what is made.
        let makes = |attr: Place, made: Place| {
            let between = (attr.file == made.file && attr.span.end <= made.span.start)
                .then(|| &self.lint.files[attr.file].whole()[attr.span.end as usize..made.span.start as usize]);
            attr == made || between.is_some_and(|text| text.trim() == "=")
        };
        let again = |(place, practice): &(Place, Practice)| {
            practice.is_of_sibling() && sources().any(|made| makes(*place, made))
        };
        let typed = |(place, practice): &(Place, Practice)| {
            practice.met(*place).into_iter().any(|met| {
                told.iter().any(|f| {
                    f.place.file == met.file && f.place.span.start <= met.span.end && met.span.start <= f.place.span.end
                })
            })
        };
        let idle = |(place, practice): &(Place, Practice)| {
            practice.is_of_gradients() && unrecorded::is_idle(&self.lint, *place)
        };
        let no = |(place, practice): &(Place, Practice)| ruled_out::is_ruled_out(&self.lint, *place, practice);
        let is_left = |found: &(Place, Practice)| !again(found) && !typed(found) && !idle(found) && !no(found);
        let found = self.found.into_iter().filter(is_left).map(|(place, practice)| {
            let when = practice.when();
            restricted(Finding::everywhere(place, FindingKind::Practice(practice)), &when)
        });
        found.chain(arities).collect()
    }
}

/// The flag of a module that is off where it is evaluated.
const TRAINING: &str = "self.training";

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
        shown.asked().any(|(at, check)| check.is_due(&seen, shown, at, func))
    };
    shown.gradients.inside(func.span) && may_reduce()
        || gist.reads_switch && shown.has_switch(func.span)
        || shown.in_project && is_forward() && (communicates || applies())
        || due()
}

fn of_functions(project: &Project, rules: &RuleBook, files: &Files, taken: &Taken, module: ModuleId) -> OfModule {
    let (mut found, mut sums, mut failed) = (Found::new(), Sums::default(), Vec::new());
    let text = files[project.file(module)].whole();
    let (shown, digest) = (taken.asked.shown(module, text), taken.digests.of(project, module));
    sums.wraps = shown.wraps;
    digest.assigned.keys().for_each(|name| sums.marks.add(name));
    let checks: Vec<(usize, &Check)> = shown.asked().collect();
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
        let before = found.len();
        for (_, check) in due {
            guarded(Some(view.at), &mut found, &mut failed, |found| (check.of)(&view, found));
        }
        let new = found.split_off(before);
        let hidden = |(place, practice): &(Place, Practice)| {
            practice.unsummed(*place).is_some_and(|places| hidden_sum::may_be(&view, &places, false, false))
        };
        found.extend(new.into_iter().filter(|f| !hidden(f)));
    }
    OfModule { found, sums: Arc::new(sums), failed }
}

fn of_classes<'a>(lint: &Lint<'a>, module: ModuleId) -> OfClasses {
    let mut out = OfClasses::default();
    let OfClasses { found, failed } = &mut out;
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
            own_marks: OnceCell::new(),
        };
        let first = lint.project.class(at).methods.first().map(|(_, func)| FuncRef { module, func: *func });
        for check in OF_CLASSES {
            guarded(first, found, failed, |found| check(lint, &class, found));
        }
    }
    if shown.plans {
        plan::plans(lint, module, found);
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
            guarded(Some(at), found, failed, |found| check(lint, &view, found));
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
        || class.is_some() && (cut_loss::is_loss(lint.project, at) || glancer.may_cut(lint, class, gist))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{FileId, Idx, Span};

    #[test]
    fn a_check_that_fails_ends_nothing() {
        let place = Place { file: FileId::from_index(0), span: Span::new(0, 1) };
        let at = FuncRef { module: ModuleId::from_index(0), func: crate::ir::FuncId::from_index(0) };
        let (mut found, mut failed) = (Found::new(), Vec::new());
        let finds =
            |found: &mut Found| found.push((place, Practice::UnusedResult { collective: Name::from("all_gather") }));
        guarded(Some(at), &mut found, &mut failed, finds);
        guarded(Some(at), &mut found, &mut failed, |found| {
            finds(found);
            panic!("a mistake of the check");
        });
        assert_eq!((found.len(), failed), (1, vec![at]));
    }
}
