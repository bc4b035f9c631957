//! Sums of gradients behind a flag that is asked the wrong way round. In: a function. Out: sums over tensor-parallel ranks of gradients of
//! norms, or of parameters marked for sequence parallelism, that run only where the sequence is whole. Never: averages, which keep equal
//! gradients equal, and functions that sum on the other side as well. Source: Megatron-LM, `_allreduce_non_tensor_model_parallel_grads`.
//! Next: `gate.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::ir::{CmpOp, FuncKind, Operand, UnOp};
use crate::source::{Name, Place};

/// What chooses parameters that see a part of the sequence.
const CHOOSES: &[&str] = &["\"sequence_parallel\"", "'sequence_parallel'", "norm\" in ", "norm' in "];
const MARK: &str = "sequence_parallel";
/// What makes a mean of a sum.
const AVERAGES: &[&str] = &["div_(", "/=", " / ", "mul_(", "*="];
/// What gradients are called, one by one or joined.
const GRADIENTS: &[&str] = &["grad", "coalesced", "flat", "buf", "bucket"];
/// Words in names of flags that mean the opposite.
const OPPOSITE: &[&str] = &["no", "not", "disable", "disabled", "without", "skip"];
/// What single parameters are called.
const PARAMETERS: &[&str] = &["p", "param", "parameter", "weight", "w"];

/// `if not config.sequence_parallel:` around the sums.
pub fn sums(view: &View<'_>, out: &mut Found) {
    let code = view.code();
    let divides = |line: &str| near::has_any(line, AVERAGES) && near::has_any(line, GRADIENTS);
    let averages = || code.lines().any(divides) || code.contains("reduceop.avg");
    if view.func.kind != FuncKind::Function || !near::has_any(code, CHOOSES) || averages() {
        return;
    }
    // Where marks are set, `reducers.rs` follows them to what sums their parameters.
    if code.contains("getattr(") && is_marked_somewhere(view) {
        return;
    }
    let mut first: Option<(Place, Name)> = None;
    for (step, call) in view.collectives() {
        if call.rule.op != "all_reduce" {
            continue;
        }
        if !call.group.is_some_and(|group| splits_model(view, group)) {
            return;
        }
        let guards = view.steps[*step].guards.iter();
        let found =
            guards.filter_map(|g| Some((view.part(g.at, 0), asked_whole(view, &view.through(g.test), g.holds)?)));
        match found.last() {
            Some(found) => first = first.or(Some(found)),
            None => return,
        }
    }
    if let Some((place, flag)) = first {
        let over = vec![Name::from("tp")];
        out.push((place, Practice::Membership(Membership::GateInverted { flag, over })));
    }
}

/// Whether a group is that of the ranks that split the model's layers.
fn splits_model(view: &View<'_>, group: &Operand) -> bool {
    let named =
        |name: &str| near::has_part(name, "tp") || name.contains("tensor_model") || name.contains("tensor_parallel");
    near::deep(view, &view.expr(group)).any(&mut |e| view.name_of(e).is_some_and(named))
}

/// The flag that says, where a condition holds or not, that every rank has the whole sequence.
fn asked_whole(view: &View<'_>, test: &Expr, holds: bool) -> Option<Name> {
    match test {
        Expr::Bool { and, of } if *and == holds => of.iter().find_map(|e| asked_whole(view, e, holds)),
        Expr::Unary(UnOp::Not, inner) => asked_whole(view, inner, !holds),
        Expr::Compare(CmpOp::Is | CmpOp::Eq, mode, value) => of_mode(view, mode, value, holds),
        Expr::Compare(CmpOp::IsNot | CmpOp::Ne, mode, value) => of_mode(view, mode, value, !holds),
        Expr::Attr(base, name) if !is_parameter(view, base) => is_flag(name).then(|| name.clone()).filter(|_| !holds),
        Expr::Local(local) => Some(view.local_name(*local).clone()).filter(|name| is_flag(name) && !holds),
        _ => None,
    }
}

/// `mode is Mode.ALL_REDUCE`: what layers reduce is whole; what they scatter is split.
fn of_mode(view: &View<'_>, mode: &Expr, value: &Expr, same: bool) -> Option<Name> {
    let is_mode = match mode {
        Expr::Local(local) => near::has_part(view.local_name(*local), "mode"),
        other => other.last_name().is_some_and(|name| near::has_part(name, "mode")),
    };
    let whole = match value.last_name()? {
        "ALL_REDUCE" => same,
        "REDUCE_SCATTER" => !same,
        _ => false,
    };
    (is_mode && whole).then(|| value.last_name().map(Name::from))?
}

fn is_flag(name: &str) -> bool {
    name.contains(MARK) && !OPPOSITE.iter().any(|word| near::has_part(name, word))
}

/// Whether some file sets the mark on a parameter.
fn is_marked_somewhere(view: &View<'_>) -> bool {
    view.files.saying(MARK).any(|file| {
        let text = view.files[file].whole();
        text.match_indices(MARK).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + MARK.len()..]);
            let by_name = after.starts_with(['"', '\''])
                && before.rfind("attr(").is_some_and(|call| before[..call].ends_with("set"));
            let owner = before.strip_suffix('.').and_then(|b| b.rsplit(|c: char| !c.is_alphanumeric()).next());
            let assigned = after.trim_start().strip_prefix('=').is_some_and(|rest| !rest.starts_with('='));
            by_name || assigned && owner.is_some_and(|o| o == "bias" || PARAMETERS.contains(&o))
        })
    })
}

fn is_parameter(view: &View<'_>, expr: &Expr) -> bool {
    match expr {
        Expr::Local(local) => PARAMETERS.contains(&view.local_name(*local).as_str()),
        Expr::Element(_) | Expr::Item(..) => true,
        _ => false,
    }
}
