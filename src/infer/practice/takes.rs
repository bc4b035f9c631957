//! Which parameters a condition takes: by name, by a mark, by the class of their layer. In: a test of a function that goes through
//! parameters or modules. Out: alternatives of [`Test`]s. Never: a guess: what is not understood may take any. Source: DESIGN.md section 7.
//! Next: `reducers.rs`.

use super::collected;
use super::expr::Expr;
use super::near;
use super::reducers::{Covered, Test, is_gradient, parameter_loop, yes};
use super::view::View;
use crate::ir::{ArgKind, CmpOp, Const, Operand, Rvalue, Stmt, UnOp};
use crate::project::Resolved;
use crate::source::Name;

/// How many names a list may have that a test goes through.
const MOST_NAMES: usize = 32;
/// Functions that a test asks in turn.
const MOST_ASKED: usize = 2;
/// Classes that layers of all kinds derive from.
const BASES: &[&str] = &["Module", "object"];

/// The alternatives of a condition as tests on the parameter; an empty alternative asks nothing of it.
pub fn tests(view: &View<'_>, expr: &Expr, holds: bool) -> Vec<Vec<Test>> {
    within(view, expr, holds, 0)
}

fn within(view: &View<'_>, expr: &Expr, holds: bool, depth: usize) -> Vec<Vec<Test>> {
    match expr {
        Expr::Bool { and, of } if *and == holds => of.iter().fold(vec![Vec::new()], |all, e| {
            let more = within(view, e, holds, depth);
            all.iter().flat_map(|a| more.iter().map(move |b| [a.clone(), b.clone()].concat())).collect()
        }),
        Expr::Bool { of, .. } => of.iter().flat_map(|e| within(view, e, holds, depth)).collect(),
        Expr::Unary(UnOp::Not, inner) => within(view, inner, !holds, depth),
        Expr::Local(local) if view.defs(*local).iter().any(|def| parameter_loop(view, *def).is_some()) => {
            match near::deep(view, expr) {
                // Bound in several ways for each parameter, or anew.
                bound if bound.mentions(*local) || matches!(bound, Expr::Local(_)) => vec![vec![Test::Other]],
                bound => within(view, &bound, holds, depth),
            }
        }
        other => {
            if let Some(each) = one_of(view, other).filter(|_| holds) {
                return each.iter().flat_map(|e| within(view, e, true, depth)).collect();
            }
            if let Some(asked) = by_function(view, other, holds, depth) {
                return asked;
            }
            match (asked(view, other), holds) {
                (Asked::Nothing, _) => vec![Vec::new()],
                (Asked::Test(test), true) => vec![vec![test]],
                (Asked::Test(Test::Mark(mark)), false) => vec![vec![Test::NoMark(mark)]],
                // Excluded by name or mark: the others are covered, and which those are is not followed.
                (Asked::Test(_), false) | (Asked::Unknown, _) => vec![vec![Test::Other]],
            }
        }
    }
}

/// Methods that add to a list.
const GROWS: &[&str] = &["append", "extend", "insert", "add", "update"];

/// The alternatives of a test that goes through a list of names: `any(n in name for n in NAMES)`, `name.split(".")[-2] in NAMES`,
/// `name.endswith((".weight", ".bias"))`.
fn one_of(view: &View<'_>, expr: &Expr) -> Option<Vec<Expr>> {
    if let (Some([_]), Expr::Call { step, .. }) = (expr.call_of("any"), expr) {
        let Some(Rvalue::Call { args, .. }) = view.value(*step) else { return None };
        let (iter, value) = collected::comprehended(view, near::local(&args.first()?.value)?)?;
        let names = strings(view, &iter)?;
        let element = Expr::Element(Box::new(iter));
        return Some(names.into_iter().map(|name| replaced(view, &value, &element, &name)).collect());
    }
    for method in ["endswith", "startswith"] {
        let Some([(kind, names @ (Expr::Build(_) | Expr::Path(_)))]) = expr.call_of(method) else { continue };
        let Expr::Call { callee, step, .. } = expr else { continue };
        let call = |name| Expr::Call { callee: callee.clone(), args: vec![(kind.clone(), name)], step: *step };
        return Some(strings(view, names)?.into_iter().map(|n| call(Expr::Const(Const::Str(n)))).collect());
    }
    let Expr::Compare(CmpOp::In, what, names) = expr else { return None };
    let names = strings(view, names).filter(|_| what.string().is_none())?;
    let one = |name: Name| Expr::Compare(CmpOp::Eq, what.clone(), Box::new(Expr::Const(Const::Str(name))));
    Some(names.into_iter().map(one).collect())
}

/// The strings of a list or tuple that nothing is added to, few of them.
fn strings(view: &View<'_>, list: &Expr) -> Option<Vec<Name>> {
    let name = match list {
        Expr::Local(local) => view.local_name(*local).as_str(),
        other => other.last_name().unwrap_or_default(),
    };
    let grows = |file| GROWS.iter().any(|method| view.files[file].whole().contains(&format!("{name}.{method}(")));
    if !name.is_empty() && view.files.saying(name).any(grows) {
        return None;
    }
    let Expr::Build(items) = near::deep(view, list) else { return None };
    if items.is_empty() || items.len() > MOST_NAMES {
        return None;
    }
    items.iter().map(|item| item.string().cloned()).collect()
}

/// An expression with a name in the place of an element.
fn replaced(view: &View<'_>, expr: &Expr, element: &Expr, name: &Name) -> Expr {
    if expr == element || matches!(expr, Expr::Local(l) if view.through(&Operand::Local(*l)) == *element) {
        return Expr::Const(Const::Str(name.clone()));
    }
    let again = |e: &Expr| replaced(view, e, element, name);
    let boxed = |e: &Expr| Box::new(replaced(view, e, element, name));
    match expr {
        Expr::Compare(op, a, b) => Expr::Compare(*op, boxed(a), boxed(b)),
        Expr::Bool { and, of } => Expr::Bool { and: *and, of: of.iter().map(again).collect() },
        Expr::Unary(op, a) => Expr::Unary(*op, boxed(a)),
        Expr::Binary(op, a, b) => Expr::Binary(*op, boxed(a), boxed(b)),
        Expr::Call { callee, args, step } => {
            let args = args.iter().map(|(kind, e)| (kind.clone(), again(e))).collect();
            Expr::Call { callee: callee.clone(), args, step: *step }
        }
        other => other.clone(),
    }
}

/// What a function of the project that returns one expression asks: `needs_sync(name)`.
fn by_function(view: &View<'_>, expr: &Expr, holds: bool, depth: usize) -> Option<Vec<Vec<Test>>> {
    let Expr::Call { callee, args, .. } = expr else { return None };
    let Resolved::Func(at) = view.project.path(&near::path(view, callee)?) else { return None };
    let plain = args.iter().all(|(kind, _)| *kind == ArgKind::Positional);
    if depth >= MOST_ASKED || !plain || args.is_empty() {
        return None;
    }
    let helper = near::shared(view, at);
    let mut returned = helper.steps.iter().filter_map(|step| match step.stmt {
        Stmt::Return { value, .. } => Some((value, step.guards.is_empty() && step.loops.is_empty())),
        _ => None,
    });
    match (returned.next(), returned.next()) {
        (Some((value, true)), None) => Some(within(&helper, &helper.through(value), holds, depth + 1)),
        _ => None,
    }
}

enum Asked {
    Nothing,
    Test(Test),
    Unknown,
}

fn asked(view: &View<'_>, expr: &Expr) -> Asked {
    if let Some(args) = expr.call_of("getattr").or_else(|| expr.call_of("hasattr")) {
        return of_mark(view, args);
    }
    if let Some([(_, module), (_, types)]) = expr.call_of("isinstance") {
        return class_names(view, types)
            .filter(|_| is_module(view, module))
            .map_or(Asked::Unknown, |types| Asked::Test(Test::OfType(types)));
    }
    let first = |args: &[(ArgKind, Expr)]| args.first().and_then(|(_, a)| a.string().cloned());
    for (method, make) in [("endswith", Test::NameEnds as fn(Name) -> Test), ("startswith", Test::NameStarts)] {
        if let Some(args) = expr.call_of(method) {
            return first(args).map_or(Asked::Unknown, |text| Asked::Test(make(text)));
        }
    }
    match expr {
        Expr::Compare(CmpOp::In, text, whole) => match text.string() {
            Some(text) if names_class(view, whole) => Asked::Test(Test::TypeContains(text.clone())),
            Some(text) => Asked::Test(Test::NameContains(text.clone())),
            None => Asked::Unknown,
        },
        Expr::Compare(CmpOp::Is | CmpOp::IsNot, a, b) if b.is_none() && is_gradient(a) => Asked::Nothing,
        Expr::Compare(CmpOp::Is | CmpOp::Eq, a, b) if **b == Expr::Const(Const::Bool(true)) => asked(view, a),
        Expr::Compare(CmpOp::Eq, a, b) if b.string().is_some() => {
            b.string().map_or(Asked::Unknown, |name| named(view, a, name))
        }
        Expr::Attr(_, name) if name == "requires_grad" || name == "grad" => Asked::Nothing,
        // A flag of the configuration says when, not which.
        Expr::Attr(base, name) => match &**base {
            Expr::Element(_) => Asked::Test(Test::Mark(name.clone())),
            Expr::Item(inner, _) if matches!(**inner, Expr::Element(_)) => Asked::Test(Test::Mark(name.clone())),
            _ => Asked::Nothing,
        },
        Expr::Local(_) | Expr::Path(_) | Expr::Const(_) => Asked::Nothing,
        Expr::Compare(_, a, b) => match (asked(view, a), asked(view, b)) {
            (Asked::Nothing, Asked::Nothing) => Asked::Nothing,
            _ => Asked::Unknown,
        },
        Expr::Item(..) => Asked::Nothing,
        _ => Asked::Unknown,
    }
}

/// `getattr(p, "mark", False)`, also by a name of the module for the mark.
fn of_mark(view: &View<'_>, args: &[(ArgKind, Expr)]) -> Asked {
    // What says nothing has the mark: `getattr(p, "allreduce", True)`.
    if args.get(2).is_some_and(|(_, absent)| *absent == Expr::Const(Const::Bool(true))) {
        return Asked::Unknown;
    }
    match args.get(1).map(|(_, a)| (near::deep(view, a), a)) {
        Some((_, Expr::Const(Const::Str(mark)))) => Asked::Test(Test::Mark(mark.clone())),
        Some((Expr::Const(Const::Str(mark)), _)) if view.rules.mark(&mark).is_some() => Asked::Test(Test::Mark(mark)),
        Some((_, Expr::Path(path))) => Asked::Test(Test::Mark(Name::from(path.rsplit('.').next().unwrap_or(path)))),
        _ => Asked::Unknown,
    }
}

/// What equals a name: the class of a layer, or a part of the full name of the parameter.
fn named(view: &View<'_>, what: &Expr, name: &Name) -> Asked {
    if names_class(view, what) {
        return Asked::Test(Test::OfType(vec![name.clone()]));
    }
    let Expr::Item(parts, at) = what else { return Asked::Unknown };
    let by_dot = |args: &[(ArgKind, Expr)]| args.first().is_some_and(|(_, a)| a.string().is_some_and(|s| s == "."));
    if !parts.call_of("split").is_some_and(by_dot) {
        return Asked::Unknown;
    }
    match &**at {
        Expr::Const(Const::Int(-1)) => Asked::Test(Test::NameEnds(name.clone())),
        Expr::Const(Const::Int(-2)) => Asked::Test(Test::NameContains(Name::from(format!(".{name}.")))),
        _ => Asked::Unknown,
    }
}

/// Whether an expression is the name of a class: `type(m).__name__`, `m.__class__.__name__`.
fn names_class(view: &View<'_>, expr: &Expr) -> bool {
    let Expr::Attr(class, name) = expr else { return false };
    let of_type = || class.call_of("type").is_some_and(|args| args.first().is_some_and(|(_, m)| is_module(view, m)));
    let of_class = || matches!(&**class, Expr::Attr(m, attr) if attr == "__class__" && is_module(view, m));
    name == "__name__" && (of_type() || of_class())
}

/// The last names of classes that a test lists.
fn class_names(view: &View<'_>, types: &Expr) -> Option<Vec<Name>> {
    let one = |e: &Expr| e.last_name().filter(|name| !BASES.contains(name) && !name.starts_with('_')).map(Name::from);
    match near::deep(view, types) {
        Expr::Build(items) => items.iter().map(one).collect(),
        other => Some(vec![one(&other)?]),
    }
}

/// Whether an expression is one of the modules that a loop goes through, or its second item, where names come with them.
fn is_module(view: &View<'_>, expr: &Expr) -> bool {
    match &near::deep(view, expr) {
        Expr::Element(iter) => goes_through_modules(iter),
        Expr::Item(inner, _) => matches!(&**inner, Expr::Element(iter) if goes_through_modules(iter)),
        _ => false,
    }
}

/// Whether a loop goes through all modules of a model.
pub(super) fn goes_through_modules(iter: &Expr) -> bool {
    matches!(iter, Expr::Call { callee, .. } if matches!(callee.last_name(), Some("modules" | "named_modules")))
}

/// The loop over modules around one over the parameters of each.
pub fn module_loop(view: &View<'_>, head: usize) -> Option<usize> {
    let Stmt::For { iter, .. } = view.steps[head].stmt else { return None };
    let own = match view.through(iter) {
        Expr::Call { callee, .. } => match *callee {
            Expr::Attr(module, _) => is_module(view, &module),
            _ => false,
        },
        _ => false,
    };
    let all = |at: &usize| match view.steps[*at].stmt {
        Stmt::For { iter, .. } => goes_through_modules(&view.through(iter)),
        _ => false,
    };
    view.steps[head].loops.iter().rev().copied().find(all).filter(|_| own)
}

/// Tests of modules as tests of their parameters: the name of a module is no name of a parameter.
pub fn of_modules(alternatives: &mut [Vec<Test>]) {
    for test in alternatives.iter_mut().flatten() {
        match test {
            Test::OfType(_) | Test::TypeContains(_) | Test::NameContains(_) => {}
            Test::Mark(_) | Test::NoMark(_) | Test::NameEnds(_) | Test::NameStarts(_) | Test::Other => {
                *test = Test::Other
            }
        }
    }
}

/// Whether a layer that is made so is one of these classes.
pub fn is_of_type(made: &str, types: &[Name]) -> Covered {
    let Some(class) = class_of(made) else { return Covered::Perhaps };
    let last = class.rsplit('.').next().unwrap_or(class);
    // Classes of torch derive from none of each other that a test would list; of others nothing is known.
    let of_torch = ["nn.", "torch.nn."].iter().any(|start| class.strip_prefix(start) == Some(last));
    match types.iter().any(|t| t == last) {
        true => Covered::Yes,
        false if of_torch => Covered::No,
        false => Covered::Perhaps,
    }
}

/// Whether the name of the class of a layer that is made so has a text in it.
pub fn is_called(made: &str, text: &str) -> Covered {
    let class = class_of(made).map(|class| class.rsplit('.').next().unwrap_or(class));
    class.map_or(Covered::Perhaps, |class| yes(class.contains(text)))
}

/// The class of which a call makes an object.
fn class_of(made: &str) -> Option<&str> {
    let (class, _) = made.split_once('(')?;
    let named = class.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let last = class.rsplit('.').next()?;
    (named && last.starts_with(char::is_uppercase)).then_some(class)
}
