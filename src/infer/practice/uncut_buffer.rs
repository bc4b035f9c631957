//! Tables of positions beside a sequence that torch cuts. In: a function. Out: `context_parallel` over buffers of a batch, in a file whose model
//! reads its table of positions from the start: each rank has other tokens and the same positions. Never: a table that is among the
//! buffers, or a model that is told its positions. Source: torch.distributed.tensor.experimental, `context_parallel`: buffers.
//! Next: `narrow.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::ir::{BuildKind, Const, Item, Rvalue};
use crate::source::{Name, Place};

/// Parts of names of tables of positions.
const TABLES: &[&str] = &["freqs", "rope", "rotary", "cos", "sin", "pos"];

/// Parts of names of arguments that say where tokens stand.
const POSITIONS: &[&str] = &["position", "positions", "pos"];

/// `with context_parallel(mesh, buffers=[tokens, labels], ...)`
pub fn buffers(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ Rvalue::Call { args, .. }) = view.value(i) else { continue };
        let cuts = |path: &Name| {
            path.starts_with("torch.distributed.tensor.experimental") && path.ends_with(".context_parallel")
        };
        if !view.callee(value).is_some_and(|path| cuts(&path)) {
            continue;
        }
        let Some(given) = view.argument(args, usize::MAX, "buffers") else { continue };
        let Expr::Build(items) = near::deep(view, &view.expr(given)) else { continue };
        let names: Vec<String> = items.iter().filter_map(|e| name_of(view, e)).collect();
        if names.len() < items.len() {
            continue;
        }
        let cut = |table: &str| names.iter().any(|n| n.contains(table) || table.contains(n.as_str()) || is_table(n));
        // What the function names otherwise may be among them under another name.
        let code = view.code();
        let spoken = |table: &str| code.contains(table) || code.contains("buffers()");
        if let Some((table, read)) = table(view).filter(|(table, _)| !cut(table) && !spoken(table)) {
            let mistake = Membership::UncutBuffer { table, read };
            out.push((view.place(step.id), Practice::Membership(mistake)));
        }
    }
}

fn name_of(view: &View<'_>, expr: &Expr) -> Option<String> {
    match expr {
        Expr::Local(local) => Some(view.local_name(*local).to_string()),
        Expr::Item(_, key) => key.string().map(|s| s.to_string()),
        other => other.last_name().map(str::to_string),
    }
}

fn is_table(name: &str) -> bool {
    TABLES.iter().any(|part| near::has_part(name, part))
}

/// A table of positions of a model of the file, which its method reads from the start, and where.
fn table(view: &View<'_>) -> Option<(Name, Place)> {
    let all: Vec<_> = near::functions(view, view.at.module).into_iter().map(|at| near::shared(view, at)).collect();
    let tables: Vec<Name> = all.iter().flat_map(|f| registered(f)).collect();
    all.iter().filter(|f| f.func.class.is_some() && !is_told(f)).find_map(|f| {
        (0..f.steps.len()).find_map(|step| {
            let Some(Rvalue::Item { base, index }) = f.value(step) else { return None };
            let base = f.expr(base);
            let name = near::own_attribute(f, &base).filter(|name| tables.contains(name))?;
            let (_, Rvalue::Build { kind: BuildKind::Slice, items }) = f.source(index)? else { return None };
            let [Item::One(start), Item::One(stop), ..] = &items[..] else { return None };
            let start = f.expr(start);
            let first = start.is_none() || start == Expr::Const(Const::Int(0));
            let stop = near::deep(f, &f.expr(stop));
            let sized = stop.any(&mut |e| e.last_name().is_some_and(|n| n == "shape" || n == "size"));
            (first && sized).then(|| (name.clone(), f.place(f.steps[step].id)))
        })
    })
}

/// Tables that a constructor registers.
fn registered(view: &View<'_>) -> Vec<Name> {
    let of = |step: usize| match view.value(step) {
        Some(Rvalue::CallMethod { base, name, args }) if name == "register_buffer" && near::is_self(view, base) => {
            view.expr(&args.first()?.value).string().filter(|name| is_table(name)).cloned()
        }
        _ => None,
    };
    (0..view.steps.len()).filter_map(of).collect()
}

/// Whether a function is told where its tokens stand.
fn is_told(view: &View<'_>) -> bool {
    view.func.params.iter().any(|p| POSITIONS.iter().any(|part| near::has_part(&p.name, part)))
}
