//! Groups that do not fit the ranks. In: a function that makes groups. Out: what a rehearsal of a small job finds. Never: what
//! `new_groups.rs` tells by the text alone. Source: torch.distributed, `new_group`. Next: `../rehearsal/mod.rs`.

use super::super::rehearsal::{self, Holder, Rooted};
use super::Found;
use super::all_ranks::may_be_all;
use super::expr::Expr;
use super::fixed_source::{self, ROOTS, is_of_some};
use super::found::Practice;
use super::near;
use super::new_groups::{self, MEMBERS_ONLY};
use super::unfold::is_around;
use super::view::View;
use crate::ir::{Operand, Rvalue};
use crate::project::{FuncRef, ModuleId, Resolved};
use crate::source::{Name, Place};

pub fn groups(view: &View<'_>, out: &mut Found) {
    let text = view.file();
    if near::has_any(text, MEMBERS_ONLY) {
        return;
    }
    let mut told = Found::new();
    new_groups::made(view, &mut told);
    if !told.is_empty() {
        return;
    }
    let rooted = || rooted(view);
    if let Some((place, mut found)) = rehearsal::rehearse(view.project, view.rules, view.at, &rooted) {
        found.computed = ranks_at(view, place);
        out.push((place, Practice::Rehearsed(Box::new(found))));
    }
}

/// Where the ranks are computed that a group is made of.
fn ranks_at(view: &View<'_>, made: Place) -> Option<Place> {
    let call = view.steps.iter().position(|s| view.place(s.id) == made)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(call)? else { return None };
    let local = near::local(view.argument(args, 0, "ranks")?)?;
    let before = view.defs(local).iter().rfind(|def| **def < call)?;
    (!view.is_temp(local)).then(|| view.place(view.steps[*before].id))
}

/// The collectives of the project that name one rank of all, over groups that the module of this function gives.
fn rooted(view: &View<'_>) -> Vec<Rooted> {
    let getters = near::functions(view, view.at.module).into_iter().map(|at| &view.project.func(at).name);
    let getters: Vec<&Name> = getters.filter(|name| GROUPS.iter().any(|end| name.ends_with(end))).collect();
    let says = |module: &ModuleId| {
        let file = view.project.file(*module);
        *module == view.at.module
            || ROOTS.iter().any(|root| view.files.says(file, &format!("{root}=")))
                && getters.iter().any(|name| view.files.says(file, name))
    };
    let modules = view.project.modules.ids().filter(says);
    modules
        .flat_map(|module| near::functions(view, module))
        .filter(|at| ROOTS.iter().any(|root| text_of(view, *at).contains(&format!("{root}="))))
        .map(|at| near::other(view, at))
        .flat_map(|other| (0..other.steps.len()).filter_map(|step| rooted_at(view, &other, step)).collect::<Vec<_>>())
        .collect()
}

/// How names of functions end that give a group.
const GROUPS: &[&str] = &["group", "pg"];

fn text_of<'a>(view: &View<'a>, at: FuncRef) -> &'a str {
    view.files[view.project.file(at.module)].slice(view.project.func(at).span)
}

fn rooted_at(view: &View<'_>, other: &View<'_>, step: usize) -> Option<Rooted> {
    let (path, root, group) = fixed_source::rooted(other, step)?;
    if ["send", "recv", "P2P"].iter().any(|word| path.contains(word)) {
        return None;
    }
    let group = match near::deep(other, &last_value(other, group, step)) {
        Expr::Call { callee, args, .. } if args.is_empty() => match other.project.path(&near::path(other, &callee)?) {
            Resolved::Func(getter) if getter.module == view.at.module => Holder::Function(getter),
            _ => return None,
        },
        Expr::Path(path) => match other.project.path(&path) {
            Resolved::Value(module, name) if module == view.at.module => Holder::Variable(name),
            _ => return None,
        },
        _ => return None,
    };
    // Who comes here may be the ranks of one group alone.
    let some = may_be_all(other) || is_of_some(other, step, &[], 0);
    let at = other.place(other.steps[step].id);
    (!some).then(|| Rooted { collective: super::lost::last(&path), root, group, at })
}

/// The value of a variable at a step: what it was bound to last, on every way that leads there.
fn last_value(view: &View<'_>, o: &Operand, step: usize) -> Expr {
    let last = |local| view.last_def(local, step);
    match view.expr(o) {
        Expr::Local(local) if view.defs(local).len() > 1 => match last(local) {
            Some(def) if is_around(&view.steps[def], &view.steps[step]) => view.bound(def, local),
            _ => Expr::Unknown,
        },
        other => other,
    }
}
