//! Parts of parameters that nothing marks as parts. In: a constructor. Out: a parameter whose size is divided by the number of ranks of
//! an axis and that carries no mark, in a file that marks others of that kind. Never: a parameter that a call or a loop which is not
//! followed may mark. Source: DESIGN.md section 7. Next: `divided.rs`, which reads sizes, and
//! `part_beside.rs`, which asks where other parameters of the class are marked.

use super::expr::Expr;
use super::found::Practice;
use super::marking::{mark_set, mark_value, own_names};
use super::view::View;
use super::{Class, Found, Lint, class_marks, divided, near};
use crate::ir::{Arg, ArgKind, Const, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, Resolved};
use crate::rules::{Entry, MarkRule};
use crate::source::{Name, Place};
use crate::types::AxisType;

/// Parameters of a class that are parts and are not marked.
pub fn unmarked<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let marking = &lint.settings.marking;
    if marking.partitions_anything() {
        return;
    }
    if !lint.files[lint.project.file(class.at.module)].whole().contains("Parameter") {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    if init.steps.iter().all(|s| made(init, s.stmt).is_none()) {
        return;
    }
    let marked = marking.partitions_in(class.at.module);
    if marked.is_none() && !asks(init) {
        return;
    }
    let Some(touched) = touched(init) else { return };
    for step in &init.steps {
        let Some((name, args)) = made(init, step.stmt) else { continue };
        let Some(axes) = args.first().and_then(|(_, a)| divided::tensor(init, a, 0)) else { continue };
        let Some(mark) = mark_over(init, &axes).filter(|_| !touched.contains(&name)) else { continue };
        if is_seen_to_below(lint, init, class.at, &name) || is_ruled_out(class_marks::text_of(lint, class.at)) {
            continue;
        }
        let asked = || asked(init, &mark);
        let Some((other, is_asked)) = marked.map(|at| (at, false)).or_else(|| Some((asked()?, true))) else { continue };
        let otherwise = marked_otherwise(init, &name);
        let practice = Practice::PartitionNotMarked { parameter: name, mark, axes, other, is_asked, otherwise };
        out.push((init.place(step.id), practice));
    }
}

/// Where a constructor says something else of a parameter, for the last time.
fn marked_otherwise(init: &View<'_>, name: &Name) -> Option<Place> {
    let of_it = |target: &Expr| near::own_attribute(init, target) == Some(name);
    let said = |stmt: &Stmt| mark_set(init, stmt).is_some_and(|(target, _)| of_it(&target));
    init.steps.iter().rev().find(|step| said(step.stmt)).map(|step| init.place(step.id))
}

/// The mark of parts over one of some axes.
pub fn mark_over(view: &View<'_>, axes: &[Name]) -> Option<Name> {
    let is_over = |rule: &MarkRule| {
        rule.axes.iter().chain(rule.unless.iter().flat_map(|(_, axes)| axes)).any(|a| axes.contains(a))
    };
    view.rules.entries().find_map(|(_, e)| match e {
        Entry::Mark(rule) if rule.set == AxisType::V && is_over(rule) => {
            Some(Name::from(rule.name.trim_start_matches('.')))
        }
        _ => None,
    })
}

/// Whether the file may ask parameters for marks.
fn asks(view: &View<'_>) -> bool {
    let text = view.file();
    let named = |e: &Entry| match e {
        Entry::Mark(rule) if rule.set == AxisType::V => {
            let name = rule.name.trim_start_matches('.');
            ['"', '\''].iter().any(|quote| text.contains(&format!("{quote}{name}{quote}")))
        }
        _ => false,
    };
    text.contains("getattr(") && view.rules.entries().any(|(_, e)| named(e))
}

/// Where a function of the file that sums over ranks asks parameters for a mark of a part, or one that it calls.
fn asked(view: &View<'_>, mark: &Name) -> Option<Place> {
    let module = near::functions(view, view.at.module);
    let sums = module.iter().any(|at| {
        let other = near::other(view, *at);
        other.code().contains("grad") && other.collectives().iter().any(|(_, c)| c.rule.op == "all_reduce")
    });
    module.into_iter().filter(|_| sums).find_map(|at| {
        let other = near::other(view, at);
        (0..other.steps.len()).find_map(|i| {
            let Some(Rvalue::Call { callee, args }) = other.value(i) else { return None };
            let asks = matches!(other.expr(callee).last_name(), Some("getattr" | "hasattr"));
            let name = other.expr(&args.get(1)?.value);
            // What has no mark is a copy, and nothing else is asked.
            let absent = args.get(2).is_none_or(|a| other.expr(&a.value) == Expr::Const(Const::Bool(false)));
            let code = other.code();
            let plain = absent
                && code.matches("getattr(").count() < 2
                && !near::has_any(code, &["id(", "is False", "not getattr", "endswith("]);
            (asks && plain && name.string() == Some(mark)).then(|| other.place(other.steps[i].id))
        })
    })
}

/// `self.name = Parameter(...)`, with the arguments.
fn made(init: &View<'_>, stmt: &Stmt) -> Option<(Name, Vec<(ArgKind, Expr)>)> {
    let Stmt::SetAttr { base, name, value } = stmt else { return None };
    let receiver = init.func.params.first()?.local;
    if !matches!(init.expr(base), Expr::Local(l) if l == receiver) {
        return None;
    }
    match init.expr(value) {
        Expr::Call { callee, args, .. } if callee.path().is_some_and(|p| p.ends_with(".Parameter")) => {
            // One that is not trained has no gradient, and no norm of it.
            let frozen = |(kind, value): &(ArgKind, Expr)| {
                matches!(kind, ArgKind::Keyword(k) if k == "requires_grad") && *value == Expr::Const(Const::Bool(false))
            };
            (!args.iter().any(frozen)).then(|| (name.clone(), args))
        }
        _ => None,
    }
}

/// Attributes that are marked, or given to something that may mark them; `None` if that may be any.
fn touched(init: &View<'_>) -> Option<Vec<Name>> {
    let mut out = Vec::new();
    let receiver = init.func.params.first()?.local;
    for (index, step) in init.steps.iter().enumerate() {
        if let Some((target, mark)) = mark_set(init, step.stmt)
            && init.rules.mark(&mark).is_some_and(|r| r.set == AxisType::V)
        {
            out.extend(own_names(init, &target)?);
        }
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = init.value(index) else {
            continue;
        };
        let harmless = init.callee(value).is_some_and(|path| {
            if path == "setattr" {
                out.extend(named_by_value(init, args).unwrap_or_default());
            }
            path.starts_with("torch.")
                || ["print", "len", "isinstance", "super", "setattr", "hasattr"].contains(&path.as_str())
        });
        if harmless {
            continue;
        }
        for arg in args {
            match init.expr(&arg.value) {
                Expr::Local(l) if l == receiver => return None,
                given => out.extend(own_names(init, &given).unwrap_or_default()),
            }
        }
    }
    Some(out)
}

/// Attributes on which a mark may be set whose name is a value: `setattr(self.bias, mark, True)`.
fn named_by_value<'a>(init: &View<'a>, args: &'a [Arg]) -> Option<Vec<Name>> {
    let [target, name, ..] = args else { return None };
    let name = near::deep(init, &init.expr(&name.value));
    let marks = name.string().is_none_or(|name| init.rules.mark(name).is_some_and(|r| r.set == AxisType::V));
    marks.then(|| own_names(init, &init.expr(&target.value)))?
}

/// Whether a class raises where there are several ranks, freezes parameters, or marks them in a way that is not followed.
fn is_ruled_out(text: &str) -> bool {
    let of_one = |line: &str| line.starts_with("assert") && line.contains("== 1");
    let of_several = |line: &str| line.starts_with("if ") && near::has_any(line, &["!= 1", "> 1"]);
    let alone = near::refusals(text).any(|line| of_one(line) || of_several(line));
    alone || class_marks::freezes(text) || text.contains("_parameters[") || text.contains("__dict__")
}

/// Whether a class of the file that is derived from that of a constructor speaks of an attribute: it may mark it.
fn is_seen_to_below(lint: &Lint<'_>, init: &View<'_>, class: ClassRef, name: &str) -> bool {
    let own = &lint.project.class(class).name;
    let attribute = format!("self.{name}");
    lint.project.modules[class.module].ir.classes.ids().filter(|id| *id != class.class).any(|other| {
        let span = lint.project.class(ClassRef { module: class.module, class: other }).span;
        let text = init.text(init.spot(span));
        let head = text.lines().next().unwrap_or_default();
        near::has_word(head, own) && text.contains(&attribute)
    })
}

/// Where a constructor makes a parameter that is not a part by its size, and that nothing it calls may mark.
pub fn whole_unmarked(init: &View<'_>, name: &str) -> Option<Place> {
    let touched = touched(init)?;
    init.steps.iter().find_map(|step| {
        let (made, args) = made(init, step.stmt).filter(|(made, _)| made == name && !touched.contains(made))?;
        let whole = args.iter().all(|(_, a)| divided::tensor(init, a, 0).is_none());
        (whole && made == name).then(|| init.place(step.id))
    })
}

/// The place of a mark of a part that a constructor sets on its own parameters.
pub fn marks_part(view: &View<'_>, index: usize) -> Option<(Expr, Place)> {
    let place = view.place(view.steps[index].id);
    if let Some((target, mark)) = mark_set(view, view.steps[index].stmt) {
        return view.rules.mark(&mark).filter(|r| r.set == AxisType::V).map(|_| (target, place));
    }
    let value = view.value(index)?;
    let path = view.callee(value)?;
    let Rvalue::Call { args, .. } = value else { return None };
    if let Resolved::Func(helper) = view.project.path(&path) {
        return marked_by(view, args, &near::shared(view, helper)).map(|target| (target, place));
    }
    let Some(Entry::Intrinsic(rule)) = view.rules.get(&path) else { return None };
    let tensor: Option<&Operand> = view.argument(args, 0, "tensor");
    let told = view.argument(args, 1, "is_parallel").is_none_or(|o| view.through(o) == Expr::Const(Const::Bool(true)));
    (rule.does == "mark-partitioned" && told).then_some(())?;
    Some((view.expr(tensor?), place))
}

/// What a function of the project marks as a part of what it is given, under no condition.
fn marked_by<'a>(view: &View<'a>, args: &'a [Arg], helper: &View<'_>) -> Option<Expr> {
    let given = |e: &Expr| match e {
        Expr::Local(local) => {
            let at = helper.func.params.iter().position(|p| p.local == *local)?;
            view.argument(args, at, &helper.func.params[at].name)
        }
        _ => None,
    };
    helper.steps.iter().filter(|step| step.guards.is_empty() && step.loops.is_empty()).find_map(|step| {
        let (target, mark) = mark_set(helper, step.stmt)?;
        view.rules.mark(&mark).filter(|rule| rule.set == AxisType::V)?;
        let yes = Expr::Const(Const::Bool(true));
        let set = helper.expr(mark_value(step.stmt)?);
        let holds = set == yes || given(&set).is_some_and(|told| view.through(told) == yes);
        given(&target).filter(|_| holds).map(|tensor| view.expr(tensor))
    })
}
