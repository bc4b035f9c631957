//! Axis maps of checkpoints against the marks of parameters. In: a class. Out: a parameter of which the map for the checkpoint says another
//! dim than its mark, that one of them leaves out. Never: a map or a mark that is computed. Source: DESIGN.md section 7.
//! Next: `partition.rs`, which finds the marks.

use super::expr::Expr;
use super::found::{Practice, Scales};
use super::view::View;
use super::{Class, Found, Lint, near, partition};
use crate::ir::{Arg, ArgKind, BuildKind, Const, Item, Operand, Rvalue, Stmt, UnOp};
use crate::project::FuncRef;
use crate::rules::Entry;
use crate::source::{Name, Place};

/// A parameter, the dim that is split, and where that is said.
type Split = (Name, i64, Place);

/// Maps that disagree with the constructor of a class.
pub fn disagreeing<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    if !class.maps {
        return;
    }
    let mut maps: Vec<(Vec<Split>, Place)> = Vec::new();
    let mut said = String::new();
    for (_, func) in &lint.project.class(class.at).methods {
        let file = lint.project.file(class.at.module);
        let at = FuncRef { module: class.at.module, func: *func };
        let text = lint.files[file].slice(lint.project.func(at).span);
        if text.contains("state_dict") {
            let found = of_method(&lint.view(at));
            said.push_str(if found.is_some() { text } else { "" });
            maps.extend(found);
        }
    }
    let [(map, whole)] = maps.as_slice() else { return };
    let Some(init) = class.init(lint) else { return };
    let marks = marks(init);
    for (name, dim, place) in map {
        let marked = marks.iter().find(|(n, ..)| n == name);
        let mistake = match marked {
            Some((_, own, mark)) if own != dim => Some((Some(*own), *mark)),
            Some(_) => None,
            None => partition::whole_unmarked(init, name).filter(|_| !marks.is_empty()).map(|made| (None, made)),
        };
        if let Some((marked, mark)) = mistake {
            let found = Scales::CheckpointAxis { parameter: name.clone(), mapped: Some(*dim), marked, mark };
            out.push((*place, Practice::Scales(found)));
        }
    }
    for (name, dim, mark) in &marks {
        // Another entry, another map or the method of a base may have it.
        let elsewhere = || near::has_word(&said, name) || said.contains("super()");
        if !map.iter().any(|(n, ..)| n == name) && !elsewhere() {
            let found =
                Scales::CheckpointAxis { parameter: name.clone(), mapped: None, marked: Some(*dim), mark: *mark };
            out.push((*whole, Practice::Scales(found)));
        }
    }
}

/// The map that a method gives to what makes the checkpoint.
fn of_method(view: &View<'_>) -> Option<(Vec<Split>, Place)> {
    (0..view.steps.len()).find_map(|step| {
        let value = view.value(step)?;
        let Entry::Intrinsic(rule) = view.rules.get(&view.callee(value)?)? else { return None };
        let Rvalue::Call { args, .. } = value else { return None };
        let at = rule.args.index("axis_map").filter(|_| rule.does == "checkpoint-axes")?;
        let named = |a: &&Arg| matches!(&a.kind, ArgKind::Keyword(name) if name.ends_with("axis_map"));
        let given = args.get(at).filter(|a| a.kind == ArgKind::Positional).or_else(|| args.iter().find(named))?;
        let (made, Rvalue::Build { kind: BuildKind::Dict, items }) = view.source(&given.value)? else { return None };
        if is_changed(view, &given.value) {
            return None;
        }
        let mut map = Vec::new();
        for (i, pair) in items.chunks(2).enumerate() {
            match pair {
                [Item::One(Operand::Const(Const::Str(name))), Item::One(Operand::Const(Const::Int(dim)))] => {
                    map.push((name.clone(), *dim, view.part(view.steps[made].id, 2 * i + 1)));
                }
                _ => return None,
            }
        }
        (!map.is_empty()).then(|| (map, view.place(view.steps[made].id)))
    })
}

/// Whether something is done with a map or a list but to give it on.
pub fn is_changed(view: &View<'_>, map: &Operand) -> bool {
    let expr = view.expr(map);
    (0..view.steps.len()).any(|step| match (view.steps[step].stmt, view.value(step)) {
        (Stmt::SetItem { base, .. }, _) | (_, Some(Rvalue::CallMethod { base, .. })) => view.expr(base) == expr,
        (_, Some(Rvalue::InPlace { left, .. })) => view.expr(left) == expr,
        _ => false,
    })
}

/// The parameters that a constructor marks as parts on a dim that it names, under no flag.
fn marks(init: &View<'_>) -> Vec<Split> {
    let mut out = Vec::new();
    for step in 0..init.steps.len() {
        let Some((Expr::Attr(base, name), place)) = partition::marks_part(init, step) else { continue };
        let Some(Rvalue::Call { args, .. }) = init.value(step) else { continue };
        let own = matches!(*base, Expr::Local(l) if init.func.params.first().is_some_and(|p| p.local == l));
        let on = init.argument(args, 1, "is_parallel").map(|o| init.through(o));
        let dim = init.argument(args, 2, "dim").and_then(|o| number(&init.through(o)));
        if let (true, Some(Expr::Const(Const::Bool(true))), Some(dim)) = (own, on, dim) {
            out.push((name, dim, place));
        }
    }
    out
}

fn number(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Const(Const::Int(n)) => Some(*n),
        Expr::Unary(UnOp::Neg, inner) => number(inner).map(|n| -n),
        _ => None,
    }
}
