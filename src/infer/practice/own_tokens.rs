//! Auxiliary losses that are multiplied by the tokens of one rank, where each rank has its share of a loss over all tokens. In: a class with an
//! autograd function that attaches a loss, under a flag that asks for a loss per token. Out: the product, if the loss was divided by the size of a
//! group over which the tokens are split, or is made of sums over it. Never: a factor that is not known, a count that was summed, or a class
//! that gathers tokens. Source: Megatron-LM, pull request 5047. Next: `part_loss.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::part_loss::{is_scaled, own_methods};
use super::view::{Guard, View};
use super::{Class, Found, Lint, near};
use crate::ir::{Arg, ArgKind, BinOp, CmpOp, LocalId, Operand, Rvalue, UnOp};
use crate::source::{Name, Place, Span};

/// What a flag is called that has gradients divided by the number of all tokens.
const FLAG: &str = "per_token";
/// Parts of names of groups and sizes of ranks that split the tokens of a sequence.
const AXES: &[&str] = &["tp", "cp", "sp", "tensor", "sequence", "context"];
/// Parts of names of groups and their sizes.
const RANKS: &[&str] = &["group", "world", "parallel", "degree", "rank", "mesh", "pg"];
/// Parts of names of calls after which a rank may have other tokens than its own.
const GATHERS: &[&str] = &["all_gather", "allgather", "gather_from", "gather_seq", "gather_along", "all_to_all"];
/// How a file gathers tokens, or scales a gradient where it arrives.
const ELSEWHERE: &[&str] = &["all_gather(", "all_gather_into_tensor(", "gather_from_", "register_hook("];
/// How a call multiplies by a number of ranks of its own.
const FACTORS: &[&str] = &["group.size(", "_size", "world_size", "size *", "* size"];
/// Parts of names of calls that may change a number to that of all ranks.
const COMMUNICATES: &[&str] = &["reduce", "gather", "sync", "sum_over", "psum"];
/// Methods that give the same number in another form.
const SAME: &[&str] = &["float", "to", "type", "type_as", "double", "detach", "clone"];

/// A product of a loss and a number of tokens.
#[derive(Default)]
struct Product {
    loss: Option<Operand>,
    count: Option<(usize, Operand)>,
    /// There is a factor that is neither of these, nor a number without a part in it.
    other: bool,
}

/// `Scaler.apply(logits, z_loss * logits.shape[0])`, where `coeff / self.tp_cp_group.size()` is in the loss.
pub fn attached<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let file = &lint.files[lint.project.file(class.at.module)];
    let text = file.slice(lint.project.class(class.at).span);
    if !text.contains(FLAG) || !text.contains(".apply(") || !text.contains("loss") {
        return;
    }
    let methods = own_methods(lint, class.at);
    let own = methods.iter().filter(|m| m.at.module == class.at.module && m.func.class == Some(class.at.class));
    let mut found = Vec::new();
    for method in own.filter(|m| m.code().contains(FLAG) && m.code().contains(".apply(")) {
        for (step, loss) in attachments(method) {
            found.extend(mistake(method, &methods, step, loss));
        }
    }
    let gathers = |m: &View<'_>| {
        (0..m.steps.len()).any(|i| near::name_of_call(m, i).is_some_and(|name| near::has_any(&name, GATHERS)))
    };
    let file_gathers = || near::has_any(&file.whole().to_lowercase(), ELSEWHERE);
    if !found.is_empty() && !is_scaled(lint) && !file_gathers() && !methods.iter().any(gathers) {
        out.extend(found);
    }
}

/// The steps that attach a loss to a value, with the loss.
fn attachments<'a>(view: &View<'a>) -> Vec<(usize, &'a Operand)> {
    let of = |step: usize| {
        let value = view.value(step)?;
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
        let scaler = match value {
            Rvalue::CallMethod { base, name, .. } if name == "apply" => view.through(base),
            Rvalue::Call { callee, .. } => match view.through(callee) {
                Expr::Path(path) => Expr::Path(Name::from(path.strip_suffix(".apply")?)),
                _ => return None,
            },
            _ => return None,
        };
        let [_, loss] = &args[..] else { return None };
        let scales = scaler.last_name().is_some_and(|name| name.to_lowercase().contains("scale"));
        (scales && loss.kind == ArgKind::Positional).then_some((step, &loss.value))
    };
    (0..view.steps.len()).filter_map(of).collect()
}

/// What is wrong with a loss that is attached.
fn mistake<'a>(view: &View<'a>, methods: &[View<'a>], attached: usize, loss: &Operand) -> Option<(Place, Practice)> {
    let mut product = Product::default();
    factors(view, loss, attached, 0, &mut product);
    let (Some(of), Some((made, count)), false) = (product.loss, product.count, product.other) else { return None };
    let guarded = |step: usize| view.steps[step].guards.iter().any(|guard| asks_flag(view, guard));
    if !guarded(made) && !guarded(attached) || !is_own_count(view, &view.expr(&count), 0) {
        return None;
    }
    let (group, shared) = shared(view, methods, &of, made)?;
    let text = |place: Place| view.text(place).to_lowercase();
    let alone = near::refusals(&text(view.spot(view.func.span))).any(|line| near::has_any(line, &["== 1", "> 1"]));
    if alone || is_of_flag(view, methods, shared) || near::has_any(&text(view.place(view.steps[attached].id)), FACTORS)
    {
        return None;
    }
    let name =
        |operand: &Operand| near::local(operand).filter(|l| !view.is_temp(*l)).map(|l| view.local_name(l).clone());
    let counted = near::local(&count).and_then(|local| view.last_def(local, made)).map(|at| view.steps[at].id);
    let counted = counted.filter(|id| *id != view.steps[made].id).map(|id| view.place(id));
    let mistake = Lapse::OwnTokens { loss: name(&of), count: name(&count), group, shared, counted };
    // The product is in the call, or a statement of its own.
    Some((view.place(view.steps[made].id), Practice::Lapse(mistake)))
}

/// Whether what shares a loss stands under an answer of the flag, or asks it itself: it may be of another loss than the one per token.
fn is_of_flag<'a>(view: &View<'a>, methods: &[View<'a>], shared: Place) -> bool {
    let file = &view.files[shared.file];
    let line = file.position(shared.span.start).line as usize;
    let asked = |m: &View<'a>, guard: &Guard<'_>| m.text(m.part(guard.at, 0)).to_lowercase().contains(FLAG);
    let guarded = |m: &View<'a>| {
        let around = |span: Span| span.start <= shared.span.start && shared.span.end <= span.end;
        let step = m.steps.iter().find(|step| around(m.place(step.id).span));
        step.is_some_and(|step| step.guards.iter().any(|guard| asked(m, guard)))
    };
    file.text.lines().nth(line - 1).is_some_and(|line| line.contains(FLAG)) || methods.iter().any(guarded)
}

/// Whether a guard holds where the loss is one per token.
fn asks_flag(view: &View<'_>, guard: &Guard<'_>) -> bool {
    let test = near::deep(view, &view.expr(guard.test));
    let (test, holds) = match &test {
        Expr::Unary(UnOp::Not, of) => ((**of).clone(), !guard.holds),
        _ => (test, guard.holds),
    };
    holds && view.name_of(&test).is_some_and(|name| name.contains(FLAG))
}

/// Takes a product apart, through variables that hold one.
fn factors(view: &View<'_>, operand: &Operand, before: usize, depth: usize, out: &mut Product) {
    let value = near::local(operand).and_then(|local| {
        let step = view.last_def(local, before)?;
        Some((step, view.value(step)?))
    });
    let stands_for_loss = || near::local(operand).is_some_and(|l| !view.is_temp(l)) && is_loss(view, operand);
    match value {
        _ if depth > super::super::limits::MAX_EXPR_DEPTH => out.other = true,
        // What the loss was multiplied by before is looked at for ranks alone.
        _ if out.count.is_some() && out.loss.is_none() && stands_for_loss() => {
            out.loss = Some(operand.clone());
            out.other |= has_ranks(view, operand, before, 0);
        }
        Some((step, Rvalue::Use(inner))) => factors(view, inner, step, depth + 1, out),
        Some((
            step,
            Rvalue::Binary { op: BinOp::Mul, left, right } | Rvalue::InPlace { op: BinOp::Mul, left, right },
        )) => {
            let is_count = |side: &&Operand| is_own_count(view, &view.expr(side), 0);
            let count = [left, right].into_iter().find(is_count).filter(|_| out.count.is_none());
            out.count = out.count.take().or(count.map(|side| (step, side.clone())));
            for side in [left, right].into_iter().filter(|side| count != Some(side)) {
                factors(view, side, step, depth + 1, out);
            }
        }
        Some((step, Rvalue::CallMethod { base, name, .. })) if SAME.contains(&name.as_str()) => {
            factors(view, base, step, depth + 1, out);
        }
        _ if is_loss(view, operand) && out.loss.is_none() => out.loss = Some(operand.clone()),
        _ => out.other = true,
    }
}

/// Whether a product has a number of ranks in it, or one of the object that may be.
fn has_ranks(view: &View<'_>, operand: &Operand, before: usize, depth: usize) -> bool {
    if depth > super::super::limits::MAX_VALUE_DEPTH {
        return true;
    }
    let value = near::local(operand).and_then(|local| {
        let step = view.last_def(local, before)?;
        Some((step, view.value(step)?))
    });
    match value {
        Some((step, Rvalue::Use(inner))) => has_ranks(view, inner, step, depth + 1),
        Some((
            step,
            Rvalue::Binary { op: BinOp::Mul, left, right } | Rvalue::InPlace { op: BinOp::Mul, left, right },
        )) => [left, right].into_iter().any(|side| has_ranks(view, side, step, depth + 1)),
        Some((step, Rvalue::Binary { op: BinOp::Div, left, .. })) => has_ranks(view, left, step, depth + 1),
        Some((_, Rvalue::Call { .. })) if !is_of_ranks(&view.expr(operand), view) => false,
        _ => {
            let expr = near::deep(view, &view.expr(operand));
            let kept = || {
                let own = near::own_attribute(view, &expr)?;
                let all = near::assigned(view, near::class_of(view)?, own);
                Some(all.iter().any(|(method, _, value)| is_of_ranks(&near::deep(method, &method.expr(value)), method)))
            };
            is_of_ranks(&expr, view) || kept().unwrap_or(false)
        }
    }
}

fn is_loss(view: &View<'_>, operand: &Operand) -> bool {
    let named = |name: &str| name.to_lowercase().contains("loss");
    match view.expr(operand) {
        Expr::Local(local) => named(view.local_name(local)),
        expr => view.name_or_callee(&expr).is_some_and(named),
    }
}

/// Whether a number is one of tokens that this rank has, on one side of a test at least.
fn is_own_count(view: &View<'_>, expr: &Expr, depth: usize) -> bool {
    let changed = matches!(expr, Expr::Local(local) if is_changed(view, *local));
    if changed || depth > super::super::limits::MAX_VALUE_DEPTH {
        return false;
    }
    let given = |e: &Expr| !is_of_ranks(e, view) && !e.any(&mut |inner| communicates(view, inner));
    let deeper = |e: &Expr| is_own_count(view, e, depth + 1);
    // What a caller may leave out is not asked for, where it has.
    let told = |test: &Expr, e: &Expr| {
        let left_out = matches!(test, Expr::Compare(CmpOp::Is | CmpOp::IsNot, of, _) if **of == *e);
        left_out && matches!(e, Expr::Local(l) if view.is_as_given(*l) && !is_of_all(view.local_name(*l)))
    };
    match near::deep(view, expr) {
        Expr::Choice(test, a, b) => {
            let (x, y) = (deeper(&a), deeper(&b));
            x && (y || told(&test, &b)) || y && told(&test, &a)
        }
        Expr::Local(local) => {
            let all: Vec<(bool, bool)> = view
                .defs(local)
                .iter()
                .map(|d| {
                    let value = view.bound(*d, local);
                    let guard = view.steps[*d].guards.last();
                    (deeper(&value), guard.is_some_and(|g| told(&view.expr(g.test), &value)))
                })
                .collect();
            let known = all.iter().any(|(own, _)| *own) && all.iter().all(|(own, told)| *own || *told);
            !view.is_param(local) && known
        }
        whole @ Expr::Item(..) => {
            let Expr::Item(base, _) = &whole else { return false };
            matches!(&**base, Expr::Attr(of, name) if name == "shape" && given(of))
        }
        Expr::Call { callee, .. } => match &*callee {
            Expr::Attr(of, name) if name == "size" || name == "numel" => given(of) && is_tensor(of),
            Expr::Attr(of, name) if name == "sum" => given(of) && is_mask(view, of),
            Expr::Attr(of, name) if SAME.contains(&name.as_str()) => deeper(of),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a name is that of a count of all ranks.
fn is_of_all(name: &str) -> bool {
    ["global", "total", "all", "reduced"].iter().any(|part| near::has_part(name, part))
}

/// Whether what has a size is a value that the method is given or made, and no attribute.
fn is_tensor(expr: &Expr) -> bool {
    matches!(expr, Expr::Local(_) | Expr::Call { .. } | Expr::Unary(..))
}

fn is_mask(view: &View<'_>, expr: &Expr) -> bool {
    expr.any(&mut |e| match e {
        Expr::Unary(UnOp::Invert, _) => true,
        Expr::Local(local) => view.local_name(*local).contains("mask"),
        _ => false,
    })
}

/// Whether a count is given to something that may make it that of all ranks.
fn is_changed(view: &View<'_>, count: LocalId) -> bool {
    view.readers(count).iter().any(|step| {
        near::name_of_call(view, *step).is_some_and(|name| near::has_any(&name, COMMUNICATES))
            || matches!(view.value(*step), Some(Rvalue::InPlace { .. }))
    })
}

fn communicates(view: &View<'_>, expr: &Expr) -> bool {
    let named = |name: &str| near::has_any(&name.to_lowercase(), COMMUNICATES);
    match expr {
        Expr::Call { callee, .. } => callee.last_name().is_some_and(named),
        Expr::Local(local) => view.defs(*local).iter().any(|d| match view.bound(*d, *local) {
            Expr::Call { callee, .. } => callee.last_name().is_some_and(named),
            _ => false,
        }),
        _ => false,
    }
}

/// Whether an expression names ranks or groups.
fn is_of_ranks(expr: &Expr, view: &View<'_>) -> bool {
    expr.any(&mut |e| view.name_of(e).is_some_and(|name| RANKS.iter().any(|part| near::has_part(name, part))))
}

/// The name of the group over which the tokens are split, if an expression is one or its size.
fn splitting(view: &View<'_>, expr: &Expr) -> Option<Name> {
    let mut found = None;
    near::deep(view, expr).any(&mut |e| {
        let Some(name) = view.name_of(e) else { return false };
        let sized = || RANKS.iter().chain(&["size"]).any(|part| near::has_part(name, part));
        if AXES.iter().any(|axis| near::has_part(name, axis)) && sized() {
            found = Some(Name::from(name));
        }
        found.is_some()
    });
    found
}

/// The group over which a loss is shared, and what says so: a division by its size, or a sum over it, on the way to the loss.
fn shared<'a>(view: &View<'a>, methods: &[View<'a>], loss: &Operand, before: usize) -> Option<(Name, Place)> {
    let mut roots = vec![];
    if let Some(found) = on_the_way(view, methods, loss, before, &mut roots) {
        return Some(found);
    }
    // What a method is given is made by its callers in the class.
    let all: Vec<_> = roots.iter().filter(|l| view.is_as_given(**l) && view.local_name(**l).contains("loss")).collect();
    let [param] = all[..] else { return None };
    let at = view.func.params.iter().position(|p| p.local == *param)?;
    let name = view.local_name(*param);
    let mut found = None;
    for caller in methods {
        for step in 0..caller.steps.len() {
            let Some(Rvalue::CallMethod { base, name: called, args }) = caller.value(step) else { continue };
            if *called != view.func.name || !near::is_self(caller, base) {
                continue;
            }
            let given = argument(args, at.checked_sub(1)?, name)?;
            let mut product = Product::default();
            factors(caller, given, step, 0, &mut product);
            // A caller may multiply it already.
            if product.other || product.count.is_some() {
                return None;
            }
            found = found.or(on_the_way(caller, methods, given, step, &mut Vec::new()));
        }
    }
    found
}

fn argument<'a>(args: &'a [Arg], at: usize, name: &Name) -> Option<&'a Operand> {
    let named = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == name));
    let positional = || args.get(at).filter(|_| args.iter().take(at + 1).all(|a| a.kind == ArgKind::Positional));
    named.or_else(positional).map(|a| &a.value)
}

/// What on the way to a loss speaks of a group over which the tokens are split.
fn on_the_way<'a>(
    view: &View<'a>,
    methods: &[View<'a>],
    loss: &Operand,
    before: usize,
    roots: &mut Vec<LocalId>,
) -> Option<(Name, Place)> {
    let reached = near::reached(view, loss, |step| step < before);
    let mut steps: Vec<usize> =
        reached.iter().flat_map(|l| view.defs(*l).iter().copied()).filter(|s| *s < before).collect();
    steps.sort_unstable();
    roots.extend(reached);
    let helper = |step: &usize| match view.value(*step) {
        Some(Rvalue::CallMethod { base, name, .. }) if near::is_self(view, base) => {
            methods.iter().find(|m| m.func.name == *name)
        }
        _ => None,
    };
    let inside = || {
        let of = |helper: &View<'a>| (0..helper.steps.len()).find_map(|step| says(helper, step));
        steps.iter().filter_map(helper).find_map(of)
    };
    steps.iter().find_map(|step| says(view, *step)).or_else(inside)
}

/// The group of which a step divides by the size, multiplies a number by it, or sums over it.
fn says(view: &View<'_>, step: usize) -> Option<(Name, Place)> {
    let group = match view.value(step)? {
        Rvalue::Binary { op: BinOp::Div, right, .. } => splitting(view, &view.expr(right)),
        // The number of all tokens.
        Rvalue::Binary { op: BinOp::Mul, left, right } => {
            let sized = |e: &Operand| matches!(near::deep(view, &view.expr(e)), Expr::Call { callee, .. } if callee.last_name() == Some("size"));
            if sized(left) && sized(right) { splitting(view, &view.expr(right)) } else { None }
        }
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
            let reduces = |name: &str| name.to_lowercase().contains("reduce");
            let called = near::name_of_call(view, step).is_some_and(|name| reduces(&name));
            let of = |arg: &Arg| {
                let keyword = matches!(&arg.kind, ArgKind::Keyword(k) if reduces(k));
                if called || keyword { splitting(view, &view.expr(&arg.value)) } else { None }
            };
            args.iter().find_map(of)
        }
        _ => None,
    };
    Some((group?, view.place(view.steps[step].id)))
}
