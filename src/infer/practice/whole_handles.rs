//! Norms of handles of which some are not sharded. In: a function. Out: a sum over ranks of the norm of the gradients of all handles in a list, in a file
//! whose class of handles says by a field or property which of them are sharded, where nobody asks for that: what is not sharded is whole, and equal
//! on every rank. Never: a file whose handles are all made with one answer, that refuses one, or in which anything else speaks of shards beside the norm.
//! Source: torch pull request 88955. Next: `whole_counted.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use super::wrapped::called_function;
use crate::ir::{ArgKind, ClassId, Const, Operand, Rvalue, Stmt};
use crate::project::ClassRef;
use crate::source::{Name, Place};

/// The strategy that leaves gradients whole, as a file writes it.
const WHOLE: &str = "NO_SHARD";
/// Words of code that tells handles apart.
const APART: &[&str] = &["shard", "strategy", "whole", "replica", "rank", "numel"];

/// `all_reduce(norm(h.flat_param.grad for h in handles) ** p)`, where `h.uses_sharded_strategy` is never asked for.
pub fn sums(view: &View<'_>, out: &mut Found) {
    if !view.file().contains(WHOLE) || near::has_any(view.code(), APART) {
        return;
    }
    let classes = view.project.modules[view.at.module].ir.classes.ids();
    let Some((flag, told, parameter)) = classes.into_iter().find_map(|class| unasked(view, class)) else { return };
    for (i, call) in view.collectives() {
        let Some(total) = call.input.and_then(near::local).filter(|_| call.rule.op == "all_reduce") else { continue };
        if view.operator(call).is_some_and(|op| view.expr(op).last_name() != Some("SUM")) {
            continue;
        }
        let made = near::reached(view, &Operand::Local(total), |def| def < *i);
        let taken = (0..*i).find_map(|step| {
            let is_made = view.binds(step).iter().any(|l| made.contains(l));
            is_made
                .then(|| of_all(view, step, &parameter))
                .flatten()
                .map(|list| (view.place(view.steps[step].id), list))
        });
        if let Some((taken, list)) = taken {
            let mistake = Membership::WholeHandles { flag, list, told, taken };
            out.push((view.place(view.steps[*i].id), Practice::Membership(mistake)));
            return;
        }
    }
}

/// The list that a step takes the norm of the gradients of, by a function of the file that tells nothing apart.
fn of_all(view: &View<'_>, step: usize, parameter: &str) -> Option<Name> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let at = called_function(view, value)?;
    let inner = near::shared(view, Some(at).filter(|at| at.module == view.at.module)?);
    let code = inner.code();
    let takes = code.contains(".grad")
        && code.contains("norm(")
        && !near::has_any(code, APART)
        && inner.collectives().is_empty();
    let listed = args.first().filter(|a| a.kind == ArgKind::Positional && takes)?;
    let reads = |code: &str| code.contains(&format!(".{parameter}"));
    let all = reads(code) || reads(view.code());
    Some(match view.expr(&listed.value) {
        Expr::Local(local) => view.local_name(local).clone(),
        _ => Name::from(view.text(view.part(view.steps[step].id, 1))),
    })
    .filter(|_| all)
}

/// The field or property of a class that says whether its parameter is sharded, if nothing asks for it: its name, where it is set, and the
/// attribute with the parameter.
fn unasked(view: &View<'_>, class: ClassId) -> Option<(Name, Place, Name)> {
    let at = ClassRef { module: view.at.module, class };
    let of = view.project.class(at);
    let init = near::shared(view, view.project.own_method(at, "__init__")?);
    let fields = init.steps.iter().filter_map(|step| match step.stmt {
        Stmt::SetAttr { base, name, .. } if near::is_self(&init, base) => Some((name.clone(), init.place(step.id))),
        _ => None,
    });
    let fields: Vec<(Name, Place)> = fields.collect();
    let parameter = fields.iter().find(|(name, _)| name.contains("param") && !name.contains("shard"))?.0.clone();
    let says = |name: &str| {
        name.contains("shard")
            && !name.contains("param")
            && !near::has_any(name, &["size", "group", "numel", "rank", "world"])
    };
    let flags: Vec<&(Name, Place)> = fields.iter().filter(|(name, _)| says(name)).collect();
    let (flag, told) = flags.first()?;
    let methods = of.methods.iter().map(|(name, _)| name).filter(|name| says(name));
    // Outside of its class nobody asks for any of them.
    let file = near::bare(view.file());
    let own = near::bare(view.text(view.spot(of.span)));
    let asks = |name: &str| {
        let attribute = format!(".{}", name.to_lowercase());
        file.matches(&attribute).count() != own.matches(&attribute).count()
            || view.files.saying(&format!(".{name}")).count() > 1
    };
    let asked = flags.iter().any(|(name, _)| asks(name)) || methods.clone().any(|name| asks(name));
    let refused = near::refusals(view.file()).any(|line| near::has_any(line, &["shard", WHOLE]));
    let elsewhere = file.matches("no_shard").count() != own.matches("no_shard").count();
    let shown = methods.clone().next_back().cloned().unwrap_or_else(|| flag.clone());
    (!asked && !refused && !elsewhere && may_differ(view, at)).then_some((shown, *told, parameter))
}

/// Whether handles are made elsewhere, or not all with the same constant.
fn may_differ(view: &View<'_>, class: ClassRef) -> bool {
    let path = view.project.qualified_class(class);
    let made = super::called::sites(view, &path, None);
    made.is_empty()
        || made.iter().any(|(caller, step)| {
            let Some(Rvalue::Call { args, .. }) = caller.value(*step) else { return false };
            args.iter().skip(1).any(|a| match caller.through(&a.value) {
                Expr::Const(Const::Bool(holds)) => !holds,
                Expr::Const(Const::Str(strategy)) => strategy == WHOLE,
                Expr::Const(_) => false,
                Expr::Path(path) => path.ends_with(WHOLE),
                _ => true,
            })
        })
}
