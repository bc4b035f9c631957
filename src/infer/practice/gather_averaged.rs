//! Parts of gradients that a wrapper averages. In: a function with a backward pass. Out: a gather over ranks with their own part of the sequence, whose
//! backward gives each rank its own part and sums nothing, before a loss, where the file wraps models so that gradients are averaged over these
//! ranks as well: the sum of the parts was wanted. Never: a file that scales by a number of ranks. Source: VeOmni, pull request 1120; DESIGN.md
//! section 6, factors. Next: `backwards.rs`.

use super::Found;
use super::backwards::Backwards;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::view::View;
use crate::ir::{LocalId, Operand, Rvalue, Stmt};
use crate::project::ClassRef;
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;

/// Parts of names of ranks with a part of the sequence, and of ranks with other samples.
const SEQUENCE: &[&str] = &["sp", "cp", "ulysses", "seq", "sequence", "context"];
const DATA: &[&str] = &["dp", "data", "fsdp"];
/// The functions that wrap a model so that gradients are averaged.
const WRAPS: &[&str] = &["DistributedDataParallel", "FullyShardedDataParallel", "fully_shard"];
/// Words of code that may make up for it.
const SCALES: &[&str] = &[
    "divide_factor",
    "predivide",
    "comm_hook",
    "register_hook",
    "scale",
    ".mul",
    "reduce_scatter",
    ".grad",
    "foreach_",
    "assert",
    "mask",
    "where(",
    "-100",
    "ignore_index",
];
/// Methods that leave a part of a tensor.
const CUTS: &[&str] = &["chunk", "split", "narrow", "masked_fill", "index_select", "tensor_split"];
/// Words of numbers of ranks.
const SIZES: &[&str] = &["size", "world", "degree", "num_"];

/// `loss = mse(Gather.apply(model(x), 1, sp_group), y)`, and `DDP(model, process_group=dp_sp_group)`
pub fn losses(view: &View<'_>, out: &mut Found) {
    let text = near::bare(view.file());
    let multiplies = |line: &str| (line.contains('*') || line.contains("/ ")) && near::has_any(line, SIZES);
    if near::has_any(&text, SCALES) || text.lines().any(multiplies) {
        return;
    }
    for (at, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        let Some(class) = near::applied(view, value) else { continue };
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { continue };
        let group = args.iter().find_map(|arg| sequence_group(view, &arg.value));
        let (Some(group), Some(passed)) = (group, loss_of(view, at, *dst)) else { continue };
        let (Some(given), Some(wrapped)) = (gives_part(view, class), wrapper(view, &group)) else { continue };
        let mistake = Backwards::PartAveraged {
            group,
            gathered: view.place(step.id),
            passed,
            wrapped,
            class: view.project.class(class).name.clone(),
        };
        out.push((given, Practice::Backwards(mistake)));
        return;
    }
}

/// The group of an argument, if it is called one of ranks with parts of the sequence.
fn sequence_group(view: &View<'_>, arg: &Operand) -> Option<Name> {
    let expr = view.expr(arg);
    let name = view.name_of(&expr)?;
    let of_sequence = has_part(name, SEQUENCE) && !has_part(name, DATA);
    (of_sequence && near::has_any(name, &["group", "pg"])).then(|| Name::from(name))
}

fn has_part(name: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| near::has_part(name, part))
}

/// Where the backward pass begins of a loss that is computed of a variable, and of nothing that is split again.
fn loss_of(view: &View<'_>, from: usize, gathered: LocalId) -> Option<Place> {
    let mut made: FxHashSet<LocalId> = FxHashSet::from_iter([gathered]);
    for at in from + 1..view.steps.len() {
        let reads = |o: &Operand| near::local(o).is_some_and(|local| made.contains(&local));
        match view.value(at) {
            Some(Rvalue::CallMethod { base, name, .. }) if name == "backward" && reads(base) => {
                return view.steps[at].loops.is_empty().then(|| view.place(view.steps[at].id));
            }
            // A factor, a part or a choice of it may make up for the mean.
            Some(Rvalue::Binary { .. } | Rvalue::InPlace { .. } | Rvalue::Item { .. } | Rvalue::Compare { .. })
                if view.reads(at).into_iter().any(reads) =>
            {
                return None;
            }
            Some(Rvalue::CallMethod { name, .. }) if CUTS.contains(&name.as_str()) => return None,
            Some(value) if view.reads(at).into_iter().any(reads) => {
                if view.may_communicate(value) {
                    return None;
                }
                if let Stmt::Assign { dst, .. } = view.steps[at].stmt {
                    made.insert(*dst);
                }
            }
            _ => {}
        }
    }
    None
}

/// Where the backward of an autograd function that gathers gives a rank its own part of the gradient, and nothing sums that.
fn gives_part(view: &View<'_>, class: ClassRef) -> Option<Place> {
    let method = |name: &str| view.project.own_method(class, name).map(|at| near::shared(view, at));
    let (forward, backward) = (method("forward")?, method("backward")?);
    let [(_, gather)] = forward.collectives() else { return None };
    if gather.rule.op != "all_gather" || near::communicates(&backward) {
        return None;
    }
    let cuts = near::has_any(backward.code(), &["chunk(", "split(", "narrow("]) && backward.code().contains("rank");
    let multiplies = near::has_any(backward.code(), &["*", "/"]);
    let returned = backward.steps.iter().rfind(|step| matches!(step.stmt, Stmt::Return { .. }))?;
    (cuts && !multiplies).then(|| backward.place(returned.id))
}

/// Where the file wraps a model over ranks with other samples and these together.
fn wrapper(view: &View<'_>, group: &str) -> Option<Place> {
    let wanted = SEQUENCE.iter().find(|part| near::has_part(group, part))?;
    near::functions(view, view.at.module).into_iter().find_map(|at| {
        let other = near::shared(view, at);
        (0..other.steps.len()).find_map(|step| {
            let value = other.value(step)?;
            let path = other.callee(value)?;
            let wraps = WRAPS.contains(&super::lost::last(&path).as_str());
            let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
            let over = args.iter().skip(1).any(|arg| {
                let named = match other.through(&arg.value) {
                    Expr::Item(_, at) => at.string().cloned(),
                    e => other.name_of(&e).map(Name::from),
                };
                named.is_some_and(|name| near::has_part(&name, wanted) && has_part(&name, DATA))
            });
            (wraps && over).then(|| other.place(other.steps[step].id))
        })
    })
}
