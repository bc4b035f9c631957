//! Gradients of experts that are averaged over the ranks with copies of them. In: a function that reduces gradients, with a group that a test for
//! experts chooses. Out: a division by the size of the chosen group: the tokens of all data ranks have reached the experts, of each rank with the
//! factor of its own mean, so the mean is over all of these ranks. Never: a file that speaks of the number of expert-parallel ranks, which may make
//! up for it elsewhere. Source: DESIGN.md section 6, expert gradients. Next: `narrow.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::near;
use super::raw::{Sort, raw};
use super::reducers::is_gradient;
use super::view::{Guard, View};
use super::wrapped::says;
use crate::ir::{BinOp, LocalId, Operand, Rvalue, UnOp};
use crate::source::Place;

/// Words of tests that ask for experts, and of numbers of ranks that may make up for the difference.
pub const EXPERTS: &[&str] = &["expert", "moe"];
const DEGREES: &[&str] = &[
    "ep_size",
    "ep_world",
    "ep_degree",
    "ep_group",
    "expert_parallel",
    "expert_model_parallel",
    "expert_group",
    "expert_process_group",
    "_foreach_mul",
    "scale",
    "tp_group",
    "tensor_parallel",
    "get_process_group_ranks",
    ".size() !=",
    ".size() ==",
];

/// Those of them that are groups.
const GROUPS: &[&str] = &["ep_group", "expert_group", "expert_process_group"];

/// Parts of names of the ranks with copies of the experts.
const COPIES: &[&str] = &["data", "dp"];

/// `group = edp if is_expert(p) else dp; p.grad.div_(get_world_size(group)); all_reduce(p.grad, group=group)`
pub fn divided(view: &View<'_>, out: &mut Found) {
    let text = near::bare(view.file());
    if makes_up(view, &text) || view.files.saying("expert_parallel").next().is_some() || exchange_scales(view, &text) {
        return;
    }
    // A group is no number until its size is asked for.
    let counts = |line: &str| !near::has_any(line, GROUPS) || line.contains("size");
    let speaks = text.lines().any(|line| near::has_any(line, DEGREES) && counts(line));
    // What is further from the attribute, or beside the number of expert-parallel ranks, is told where no other size is asked for.
    let alone =
        view.func.class.is_some() && text.matches("get_world_size(").count() == 1 && !text.contains("register_hook(");
    for i in 0..view.steps.len() {
        let Some((size, plain)) = divisor(view, i) else { continue };
        let Some((group, asked)) = group_of(view, &size).filter(|_| plain && !speaks || alone) else { continue };
        let Some(chosen) = chosen_for_experts(view, group, i) else { continue };
        let Some(reduced) = (0..view.steps.len()).find(|s| is_reduced(view, *s, group)) else { continue };
        let reduced = view.place(view.steps[reduced].id);
        let place = view.place(view.steps[asked].id);
        out.push((place, Practice::Scales(Scales::ExpertMean { chosen, reduced })));
    }
}

/// Whether what sends tokens to the experts and back may scale them or their gradients: functions of another file, or one with a product or a quotient.
fn exchange_scales(view: &View<'_>, text: &str) -> bool {
    const EXCHANGE: &str = "all_to_all";
    let own = view.project.file(view.at.module);
    if view.files.saying(EXCHANGE).any(|file| file != own) {
        return true;
    }
    let scales = |code: &str| near::has_any(code, &["/", " * ", "*=", "div", "mul", "scale"]);
    text.contains(EXCHANGE)
        && near::functions(view, view.at.module).into_iter().any(|at| {
            let other = near::shared(view, at);
            other.code().contains(EXCHANGE) && scales(other.code())
        })
}

/// What shapes tensors by a number of ranks, and scales nothing.
const SHAPES: &[&str] = &["reshape(", "view(", "empty(", "zeros("];

/// Whether the class, or the function that is in none, speaks of the number of expert-parallel ranks, or another part of the file scales by it.
/// `text`: of the file, bare.
fn makes_up(view: &View<'_>, text: &str) -> bool {
    let file = &view.files[view.project.file(view.at.module)];
    let own = near::class_of(view)
        .map_or(view.func.span, |class| view.project.modules[view.at.module].ir.classes[class].span);
    if near::has_any(&near::bare(file.slice(own)), DEGREES) {
        return true;
    }
    let scales = |line: &str| near::has_any(line, &["/", "div", "*", "mul", "scale"]) && !near::has_any(line, SHAPES);
    let ratio = |line: &str| line.matches("size(").count() > 1 && near::has_any(line, &["/", "div"]);
    text.contains("register_hook(")
        || text.lines().any(|line| near::has_any(line, DEGREES) && scales(line) || ratio(line))
}

/// Whether a value is a gradient: by its attribute, or a variable of that name.
fn is_named_gradient(view: &View<'_>, value: &Operand) -> bool {
    let value = view.expr(value);
    let local = |e: &Expr| matches!(e, Expr::Local(l) if near::has_part(view.local_name(*l), "grad"));
    is_gradient(&value) || local(&value) || matches!(&value, Expr::Attr(of, name) if name == "data" && local(of))
}

/// What a step divides a gradient by, in place, and whether that is an attribute.
fn divisor(view: &View<'_>, step: usize) -> Option<(Expr, bool)> {
    let plain = |o: &Operand| is_gradient(&view.expr(o));
    match view.value(step)? {
        Rvalue::CallMethod { base, name, args } if name == "div_" && is_named_gradient(view, base) => match &args[..] {
            [by] => Some((view.through(&by.value), plain(base))),
            _ => None,
        },
        Rvalue::InPlace { op: BinOp::Div, left, right } if is_named_gradient(view, left) => {
            Some((view.through(right), plain(left)))
        }
        _ => None,
    }
}

/// The variable with the group whose size a value is, and the step that asks for it.
fn group_of(view: &View<'_>, size: &Expr) -> Option<(LocalId, usize)> {
    let Expr::Call { step, .. } = size else { return None };
    let args = size.call_of("get_world_size")?;
    let [(_, Expr::Local(group))] = args else { return None };
    (!view.is_param(*group)).then_some((*group, *step))
}

/// Where a variable gets another group for experts than for other parameters, by the last values before a step.
fn chosen_for_experts(view: &View<'_>, group: LocalId, before: usize) -> Option<Place> {
    let asks = |test: &Expr| says(view, test, EXPERTS);
    let defs: Vec<usize> = view.defs(group).iter().copied().filter(|d| *d < before).collect();
    if let [one] = defs[..]
        && let Expr::Choice(test, ..) = view.bound(one, group)
    {
        let names = |e: &Expr| says(view, &near::deep(view, e), COPIES);
        let both = |e: Expr| matches!(e, Expr::Choice(_, a, b) if names(&a) && names(&b));
        return (asks(&test) && both(view.bound(one, group))).then(|| view.place(view.steps[one].id));
    }
    let of_copies = |d: &usize| says(view, &near::deep(view, &view.bound(*d, group)), COPIES);
    let reaches = |d: &usize| !super::handles::excludes(&view.steps[*d], &view.steps[before]);
    let told = |d: &usize| view.steps[*d].guards.iter().any(|g| holds_for_experts(view, g));
    let for_experts = |d: &usize| of_copies(d) && told(d) && reaches(d);
    let at = defs.iter().find(|d| for_experts(d))?;
    (view.defs(group).len() > 1).then(|| view.place(view.steps[*at].id))
}

/// Whether what a guard leads to is for experts.
fn holds_for_experts(view: &View<'_>, guard: &Guard<'_>) -> bool {
    let test = view.expr(guard.test);
    let negated = matches!(test, Expr::Unary(UnOp::Not, _));
    says(view, &test, EXPERTS) && guard.holds != negated
}

/// Whether a step reduces gradients over a group.
fn is_reduced(view: &View<'_>, step: usize, group: LocalId) -> bool {
    let Some(call) = view.value(step).and_then(|value| raw(view, value)) else { return false };
    let over = call.group.is_some_and(|g| near::local(g) == Some(group));
    call.sort == Sort::Everyone
        && call.name.contains("reduce")
        && over
        && call.buffer.is_some_and(|b| is_named_gradient(view, b))
}
