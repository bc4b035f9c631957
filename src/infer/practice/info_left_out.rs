//! Overrides that leave out what their siblings hand on. In: a class with a base in the project. Out: a method that never reads a parameter which the same method of another
//! class of that base hands to the function that both compute a loss with; left out, it counts for itself, and nothing but this rank. Never: a method that scales
//! what it gets, a function that is given the number otherwise or counts over ranks, or a number that nothing in the module sums. Source: verl pull request 6957.
//! Next: `nodes_left_out.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::only_some::callee;
use super::slips::Slip;
use super::view::View;
use super::{Class, Found, Lint, class_marks};
use crate::ir::{Arg, ArgKind, BinOp, Const, LocalId, Operand, ParamKind, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Place};
use std::rc::Rc;

/// What counts the entries of a tensor.
const COUNTS: &[&str] = &["sum", "numel", "count_nonzero", "len"];
/// Words of methods that scale for themselves, or compute nothing that is trained.
const OWN_WAY: &[&str] =
    &["world", "ranks", "accum", "no_grad", "reduce", "gather", "eval", "detach", "item()", "backward"];

/// `def loss(self, batch, info): return value_loss(..)`, beside `def loss(self, batch, info): return policy_loss(.., **info)`
pub fn left_out<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let file = lint.files[lint.project.file(class.at.module)].whole();
    if ["**", "is None", "reduce"].iter().any(|word| !file.contains(word)) {
        return;
    }
    let order = lint.settings.statics.linearized(class.at);
    let [own, bases @ ..] = &order[..] else { return };
    if bases.is_empty() {
        return;
    }
    for (name, func) in &lint.project.class(*own).methods {
        if name.starts_with("__") || !bases.iter().any(|base| lint.project.own_method(*base, name).is_some()) {
            continue;
        }
        let at = FuncRef { module: own.module, func: *func };
        let params = &lint.project.func(at).params;
        // A sibling hands the parameter on by this name; most methods are not looked at further.
        let handed = |name: &str| file.contains(&format!("**{name}"));
        if params.len() < 3 || !params.iter().any(|p| handed(&p.name)) {
            continue;
        }
        let view = lint.view(at);
        for (position, param) in view.func.params.iter().enumerate().skip(1) {
            let unread = view.is_as_given(param.local) && !view.is_read(param.local);
            if !unread || param.kind != ParamKind::Normal || goes_its_way(lint, &view, &param.name) {
                continue;
            }
            let Some((step, left)) = left(lint, &view, (*own, bases), name, position) else { continue };
            let (function, parameter) = (left.function, param.name.clone());
            let mistake = Slip::SiblingHandsOn { function, parameter, handed: left.handed, counts: left.counts };
            out.push((view.place(view.steps[step].id), Practice::Slips(mistake)));
            return;
        }
    }
}

/// Whether a method or what stands above it says that it does otherwise.
fn goes_its_way(lint: &Lint<'_>, view: &View<'_>, parameter: &str) -> bool {
    let said = near::notes(view).iter().any(|note| near::has_word(&note.text, &parameter.to_lowercase()));
    let steps = |class: ClassRef| class_marks::text_of(lint, class).contains("backward(");
    let own = near::class_of(view).map(|class| ClassRef { module: view.at.module, class });
    near::has_any(view.code(), OWN_WAY) || near::is_unrecorded(view) || said || own.is_some_and(steps)
}

/// What a call leaves out: the function, where a sibling hands it on, and where it is counted instead.
struct Left {
    function: Name,
    handed: Place,
    counts: Place,
}

/// The call of a method that leaves out what the same method of a class beside it hands on.
fn left(
    lint: &Lint<'_>,
    view: &View<'_>,
    (own, bases): (ClassRef, &[ClassRef]),
    name: &Name,
    position: usize,
) -> Option<(usize, Left)> {
    let classes = lint.project.modules[own.module].ir.classes.ids();
    let siblings = classes.map(|class| ClassRef { module: own.module, class }).filter(|other| {
        let order = lint.settings.statics.linearized(*other);
        *other != own && (order.iter().skip(1).any(|base| bases.contains(base)) || bases.contains(other))
    });
    siblings.into_iter().find_map(|other| {
        let sibling = lint.view(lint.project.own_method(other, name)?);
        let param = sibling.func.params.get(position).filter(|p| sibling.is_as_given(p.local))?;
        let (handed, target) = (0..sibling.steps.len()).find_map(|s| hands_on(&sibling, s, param.local))?;
        let step = (0..view.steps.len()).find(|s| sink(view, *s).is_some_and(|at| at == target))?;
        let inner = near::shared(view, target);
        let counts = inner.func.params.iter().enumerate().find_map(|(n, p)| {
            let filled = near::default_of(&inner, n) == Some(Const::None) && !is_given(view, step, &inner, n);
            let counted = filled.then(|| counts_own(&inner, p.local)).flatten()?;
            is_of_all(view, &p.name).then_some(counted)
        })?;
        let function = near::written_name(view, view.value(step)?)?;
        is_result(view, step).then_some((step, Left { function, handed, counts }))
    })
}

/// Where a step hands a parameter on with all that it holds, and the function that this reaches.
fn hands_on(view: &View<'_>, step: usize, param: LocalId) -> Option<(Place, FuncRef)> {
    let args = arguments(view, step)?;
    let all = args.iter().any(|a| a.kind == ArgKind::DoubleStar && a.value == Operand::Local(param));
    Some((view.place(view.steps[step].id), sink(view, step).filter(|_| all)?))
}

fn arguments<'a>(view: &View<'a>, step: usize) -> Option<&'a [Arg]> {
    match view.value(step)? {
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => Some(args),
        _ => None,
    }
}

/// The function of the project that a call reaches with what is given by name: the one that is called, or the one to which that hands it on.
fn sink(view: &View<'_>, step: usize) -> Option<FuncRef> {
    let at = callee(view, view.value(step)?)?;
    let inner = near::shared(view, at);
    let Some(rest) = inner.func.params.iter().find(|p| p.kind == ParamKind::KwArgs) else { return Some(at) };
    let mut found = (0..inner.steps.len()).filter_map(|s| {
        let args = arguments(&inner, s)?;
        let handed = args.iter().any(|a| a.kind == ArgKind::DoubleStar && a.value == Operand::Local(rest.local));
        callee(&inner, inner.value(s)?).filter(|_| handed)
    });
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Whether a call may give a parameter of the function that it reaches.
fn is_given(view: &View<'_>, step: usize, inner: &Rc<View<'_>>, position: usize) -> bool {
    let Some(args) = arguments(view, step) else { return true };
    let direct = view.value(step).and_then(|value| callee(view, value)) == Some(inner.at);
    let placed = direct && args.iter().filter(|a| a.kind == ArgKind::Positional).count() > position;
    let name = &inner.func.params[position].name;
    placed
        || args.iter().any(|a| match &a.kind {
            ArgKind::Keyword(keyword) => keyword == name,
            ArgKind::Star | ArgKind::DoubleStar => true,
            ArgKind::Positional => false,
        })
}

/// Where a function counts for itself what it is not given, and divides by that.
fn counts_own(inner: &View<'_>, number: LocalId) -> Option<Place> {
    if near::communicates(inner) {
        return None;
    }
    let [def] = inner.defs(number) else { return None };
    let counted = inner.bound(*def, number).any(&mut |e| match e {
        Expr::Call { callee, .. } => callee.last_name().is_some_and(|name| COUNTS.contains(&name)),
        _ => false,
    });
    let divides = inner.steps.iter().any(|step| match step.stmt {
        Stmt::Assign { value: Rvalue::Binary { op: BinOp::Div, right, .. }, .. } => {
            near::reached(inner, right, |_| true).contains(&number)
        }
        _ => false,
    });
    let asked = !inner.steps[*def].guards.is_empty();
    (counted && divides && asked).then(|| inner.place(inner.steps[*def].id))
}

/// Whether a function of the module that reduces over ranks gives something this name.
fn is_of_all(view: &View<'_>, name: &str) -> bool {
    near::functions(view, view.at.module).into_iter().any(|at| {
        let text = view.text(view.spot(view.project.func(at).span));
        let named = ['"', '\''].iter().any(|quote| text.contains(&format!("{quote}{name}{quote}")));
        named && text.contains("reduce") && view.project.func(at).parent.is_some()
    })
}

/// Whether what a step gives is returned as it is.
fn is_result(view: &View<'_>, step: usize) -> bool {
    let bound = view.binds(step);
    let passes = |s: usize| match view.steps[s].stmt {
        Stmt::Return { .. } => true,
        Stmt::Assign { value: Rvalue::Use(_), .. } => is_result(view, s),
        _ => false,
    };
    let readers: Vec<usize> = bound.iter().flat_map(|local| view.readers(*local).to_vec()).collect();
    !readers.is_empty() && readers.into_iter().all(|s| s > step && passes(s))
}
