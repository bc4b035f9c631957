//! Checks of practice: mistakes that show in how the code is written, without types. In: the project and the rules.
//! Out: findings. Never: execution or prose. Each check is a file with one rule; each asks for evidence that contradicts the code
//! beside it, and is silent without. Source: DESIGN.md section 7 and the bugs in `corpus/bugs`.
//!
//! Reading order: `expr.rs`, `view.rs`, `found.rs`, then any check.

mod arity;
mod counts;
mod cut;
mod data_sum;
pub mod expr;
mod factor;
pub mod found;
mod gate;
mod gradient;
mod handles;
pub mod hints;
mod local_gradient;
mod local_map;
mod lost;
pub mod marking;
mod marks;
mod mesh_dims;
mod near;
mod nones;
mod order;
mod own_group;
mod partition;
mod pool;
mod ranks;
mod raw;
pub mod reducers;
mod shard_dim;
mod switch;
mod uneven;
mod unreduced_step;
pub mod view;

use super::finding::{Finding, FindingKind};
use super::formula::Facts;
use super::memo::{Memo, Task, combined, kept};
use super::settings::Settings;
use crate::ir::FuncKind;
use crate::project::{ClassRef, FuncRef, ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::reads::{Read, note};
use crate::source::{Files, Place};
use found::Practice;
use rayon::prelude::*;
use reducers::Reducers;
use std::sync::Arc;
use view::View;

/// What a check reports: where, and what.
type Found = Vec<(Place, Practice)>;

/// A check of single functions.
type OfFunction = fn(&View<'_>, &mut Found);

/// The checks of single functions. The text of the file, in lowercase, holds one of the words if the check has anything to say of it;
/// without words it may always have.
const OF_FUNCTIONS: &[(&[&str], OfFunction)] = &[
    (&[], lost::copies),
    (&[], lost::results),
    (&[], switch::group_choices),
    (&["to_local", "full_tensor"], local_gradient::bare),
    (&[], local_map::regions),
    (&[], local_map::styles),
    (&[], mesh_dims::counts),
    (&["all_gather_tensor", "reduce_scatter_tensor", "from_local"], shard_dim::dims),
    (&[], unreduced_step::steps),
    (&[], unreduced_step::narrow),
    (&[], own_group::left_out),
    (&[], own_group::global_rank),
    (&[], own_group::other_size),
    (&[], own_group::counted_again),
    (&["fully_shard"], factor::inner_mesh),
    (&["reduction="], factor::mean_not_undone),
    (&[], factor::auxiliary),
    (&[], factor::whatever_the_flag),
    (&[], nones::inverted),
    (&[], handles::unwaited),
    (&[], counts::local_counts),
    (&[], ranks::some_ranks),
];

/// The checks of single classes, which look at the whole project.
const OF_CLASSES: &[fn(&Lint<'_>, ClassRef, &mut Found)] = &[
    switch::stored,
    marks::unset,
    marks::unasked,
    marks::partly,
    uneven::siblings,
    uneven::biases,
    pool::shared,
    partition::unmarked,
];

/// The checks of single functions that look at the whole project.
const IN_PROJECT: &[for<'a> fn(&Lint<'a>, &View<'a>, &mut Found)] =
    &[cut::cuts, order::order, data_sum::steps, gate::gates];

/// Words that the text of a file holds if these checks have anything to say of it.
const COMMUNICATES: &[&str] = &["all_reduce", "all_gather", "all_to_all", "reduce_scatter", "backward()", "broadcast"];

/// What checks of classes see.
pub struct Lint<'a> {
    project: &'a Project,
    rules: &'a RuleBook,
    files: &'a Files,
    settings: &'a Settings,
    /// What all functions read and mark.
    sums: Arc<Sums>,
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
#[derive(Default)]
struct OfModule {
    found: Found,
    sums: Sums,
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
    fn joined(parts: &[Arc<OfModule>]) -> Sums {
        let mut out = Sums::default();
        for part in parts {
            out.reads.join(&part.sums.reads);
            out.marks.join(&part.sums.marks);
            out.wraps |= part.sums.wraps;
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
        memo: Option<&'a Memo>,
    ) -> Practices<'a> {
        let modules: Vec<ModuleId> = project.modules.ids().collect();
        let parts: Vec<Arc<OfModule>> = modules
            .par_iter()
            .map(|m| kept(memo, Task::Practice(*m), || of_functions(project, rules, files, *m)))
            .collect();
        let mut found: Found = parts.iter().flat_map(|part| part.found.iter().cloned()).collect();
        let changes = |a: &Sums, b: &Sums| if a == b { Vec::new() } else { vec![Read::Lint] };
        let sums = combined(memo, "practice", parts, |parts| Sums::joined(&parts), changes);
        let lint = Lint { project, rules, files, settings, sums };
        let of_classes: Vec<Arc<Found>> =
            modules.par_iter().map(|m| kept(memo, Task::Classes(*m), || of_classes(&lint, *m))).collect();
        found.extend(of_classes.iter().flat_map(|part| part.iter().cloned()));
        for module in &modules {
            let part = kept(memo, Task::Against(*module), || {
                let mut out = Vec::new();
                for class in project.modules[*module].ir.classes.ids() {
                    marks::against(&lint, ClassRef { module: *module, class }, &mut out);
                }
                out
            });
            found.extend(part.iter().cloned());
        }
        Practices { lint, found, memo }
    }

    /// The findings. `told`: what execution has found.
    pub fn findings(self, told: &[Finding]) -> Vec<Finding> {
        let arities = arities(&self.lint, told, self.memo);
        let found = self.found.into_iter().map(|(place, practice)| finding(place, FindingKind::Practice(practice)));
        found.chain(arities).collect()
    }
}

fn of_functions(project: &Project, rules: &RuleBook, files: &Files, module: ModuleId) -> OfModule {
    let mut out = OfModule::default();
    let text = files[project.file(module)].whole().to_lowercase();
    out.sums.wraps = data_sum::wraps(&text);
    let asked = |words: &[&str]| words.is_empty() || words.iter().any(|w| text.contains(w));
    let checks: Vec<OfFunction> = OF_FUNCTIONS.iter().filter(|(words, _)| asked(words)).map(|(_, c)| *c).collect();
    for (func, f) in project.modules[module].ir.funcs.iter_enumerated() {
        if f.kind == FuncKind::ClassBody {
            continue;
        }
        let view = View::new(project, rules, files, FuncRef { module, func });
        out.sums.reads.add(&view);
        out.sums.marks.add(&view);
        for check in &checks {
            check(&view, &mut out.found);
        }
    }
    out
}

fn of_classes(lint: &Lint<'_>, module: ModuleId) -> Found {
    let mut out = Vec::new();
    for class in lint.project.modules[module].ir.classes.ids() {
        for check in OF_CLASSES {
            check(lint, ClassRef { module, class }, &mut out);
        }
    }
    let text = lint.files[lint.project.file(module)].whole();
    if !COMMUNICATES.iter().any(|w| text.contains(w)) {
        return out;
    }
    for (func, f) in lint.project.modules[module].ir.funcs.iter_enumerated() {
        if f.kind == FuncKind::ClassBody {
            continue;
        }
        let view = lint.view(FuncRef { module, func });
        for check in IN_PROJECT {
            check(lint, &view, &mut out);
        }
    }
    out
}

/// Backwards that return the wrong number of gradients, those that execution has not seen.
fn arities(lint: &Lint<'_>, told: &[Finding], memo: Option<&Memo>) -> Vec<Finding> {
    let mut found = Vec::new();
    for module in lint.project.modules.ids() {
        let part = kept(memo, Task::Arities(module), || {
            let mut out = Vec::new();
            for class in lint.project.modules[module].ir.classes.ids() {
                arity::arity(lint, ClassRef { module, class }, &mut out);
            }
            out
        });
        found.extend(part.iter().cloned());
    }
    found.retain(|(place, kind)| !arity::is_told(told, *place, kind));
    found.into_iter().map(|(place, kind)| finding(place, kind)).collect()
}

/// A finding that holds in every configuration.
pub fn finding(place: Place, kind: FindingKind) -> Finding {
    Finding {
        kind,
        place,
        worlds: vec![Facts::default()],
        silent_worlds: Vec::new(),
        others: Vec::new(),
        calls: Vec::new(),
        reducers: Vec::new(),
        repairs: Vec::new(),
        rests_on_hint: false,
    }
}
