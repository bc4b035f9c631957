//! Checks of practice: mistakes that show in how the code is written, without types. In: the project and the rules.
//! Out: findings. Never: execution or prose. Each check is a file with one rule; each asks for evidence that contradicts the code
//! beside it, and is silent without. Source: DESIGN.md section 7 and the bugs in `corpus/bugs`.
//!
//! Reading order: `expr.rs`, `view.rs`, `found.rs`, then any check.

pub mod expr;
mod factor;
pub mod found;
pub mod hints;
mod local_gradient;
mod local_map;
mod lost;
mod mesh_dims;
mod near;
mod own_group;
pub mod reducers;
mod shard_dim;
mod unreduced_step;
pub mod view;

use super::finding::{Finding, FindingKind};
use super::formula::Facts;
use crate::ir::FuncKind;
use crate::project::{FuncRef, ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::{Files, Place};
use found::Practice;
use rayon::prelude::*;
use view::View;

/// What a check of one function reports: where, and what.
type Found = Vec<(Place, Practice)>;

/// The checks of single functions.
const OF_FUNCTIONS: &[fn(&View<'_>, &mut Found)] = &[
    lost::copies,
    lost::results,
    local_gradient::bare,
    local_map::regions,
    local_map::styles,
    mesh_dims::counts,
    shard_dim::dims,
    unreduced_step::steps,
    unreduced_step::narrow,
    own_group::left_out,
    own_group::global_rank,
    own_group::other_size,
    own_group::counted_again,
    factor::inner_mesh,
    factor::mean_not_undone,
    factor::auxiliary,
    factor::whatever_the_flag,
];

/// Everything found in a project, in the order of its modules.
pub fn practice(project: &Project, rules: &RuleBook, files: &Files) -> Vec<Finding> {
    let modules: Vec<ModuleId> = project.modules.ids().collect();
    let found: Vec<Found> = modules.par_iter().map(|m| of_module(project, rules, files, *m)).collect();
    found.into_iter().flatten().map(|(place, practice)| finding(place, practice)).collect()
}

fn of_module(project: &Project, rules: &RuleBook, files: &Files, module: ModuleId) -> Found {
    let mut out = Vec::new();
    for (func, f) in project.modules[module].ir.funcs.iter_enumerated() {
        if f.kind == FuncKind::ClassBody {
            continue;
        }
        let view = View::new(project, rules, files, FuncRef { module, func });
        for check in OF_FUNCTIONS {
            check(&view, &mut out);
        }
    }
    out
}

/// A finding that holds in every configuration.
fn finding(place: Place, practice: Practice) -> Finding {
    Finding {
        kind: FindingKind::Practice(practice),
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
