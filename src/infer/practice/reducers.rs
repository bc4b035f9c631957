//! Who sums gradients of parameters over a group, and which: loops over parameters with an all-reduce, and hooks. In: the project.
//! Out: [`Reducers`]. Never: a guess about a condition that is not understood: it may cover anything. Source: DESIGN.md section 7.
//! Next: `infer/parameters.rs`, which asks; `marks.rs`.

use super::asked::Taken;
use super::collected;
use super::expr::Expr;
use super::glance::Glancer;
use super::hooks_of_layers;
use super::may_sum::{self, Sums};
use super::takes::{self, tests};
use super::view::View;
use crate::infer::memo::{Memo, Task, combined, kept_equals};
use crate::ir::{CmpOp, FuncKind, Operand, Rvalue, Stmt, UnOp};
use crate::project::{FuncRef, ModuleId, Project, Resolved};
use crate::rules::{Entry, RuleBook};
use crate::source::reads::Read;
use crate::source::{Files, Name, Place};
use std::sync::Arc;

/// Words without which a function reduces no gradient.
pub const GRADIENTS: &[&str] = &[".grad", "main_grad", "_hook", "parameters()"];

/// Words of functions that put marked gradients into a list.
const COLLECTS: &[&str] = &["parameters()", "getattr(", ".append("];

/// Words of functions that hand marked gradients to something.
const HANDS_OVER: &[&str] = &["parameters()", "getattr(", ".grad"];

/// A condition on a parameter under which its gradient is summed.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// The parameter carries an attribute.
    Mark(Name),
    /// It does not.
    NoMark(Name),
    NameEnds(Name),
    NameStarts(Name),
    NameContains(Name),
    /// It is one of a layer of these classes.
    OfType(Vec<Name>),
    /// It is one of a layer with this in the name of its class.
    TypeContains(Name),
    /// Not understood.
    Other,
}

/// A place where gradients of parameters are summed.
#[derive(Clone, Debug, PartialEq)]
pub struct Reducer {
    pub func: FuncRef,
    /// The axes of its group, where the rules name them.
    pub axes: Option<Vec<Name>>,
    /// What the code calls its group otherwise, where it only adds: `tp_group` of `self.tp_group`.
    pub group: Option<Name>,
    /// The collective, or the registration of a hook that issues it.
    pub place: Place,
    /// The condition around it.
    pub guard: Option<Place>,
    /// Alternatives, each a conjunction; none: every parameter.
    pub when: Vec<Vec<Test>>,
    /// The function of the project that it calls, if it issues no collective itself.
    pub through: Option<FuncRef>,
    /// Flags that decide whether it runs at all, with their values and the tests.
    pub outer: Vec<(Name, bool, Place)>,
    /// The flags without which it does not run, where every condition around it is understood.
    pub only_when: Option<Vec<(Name, bool, Place)>>,
}

/// All reducers of a project, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reducers {
    pub all: Vec<Reducer>,
    /// Where functions put gradients with a mark into a list for their callers.
    pub collecting: Vec<(Name, Place)>,
}

/// Whether the gradient of a parameter is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covered {
    No,
    Yes,
    /// A condition that is not understood decides, or a mark.
    Perhaps,
}

impl Reducer {
    /// One at a step, of which nothing is known but its axes and what it takes.
    fn at(view: &View<'_>, step: usize, axes: Option<Vec<Name>>, takes: Test) -> Reducer {
        Reducer {
            func: view.at,
            axes,
            group: None,
            place: view.place(view.steps[step].id),
            guard: None,
            when: vec![vec![takes]],
            through: None,
            outer: Vec::new(),
            only_when: None,
        }
    }

    /// Whether it takes the parameters that carry a mark, and no others.
    pub fn asks(&self, mark: &str) -> bool {
        let is = |t: &Test| matches!(t, Test::Mark(m) if m == mark);
        !self.when.is_empty() && self.when.iter().all(|all| all.iter().all(is))
    }

    /// Where it says what it takes: its condition, or itself.
    pub fn shown(&self) -> Place {
        let flag = self.only_when.iter().flatten().map(|(_, _, place)| *place).next();
        flag.or(self.guard).unwrap_or(self.place)
    }

    /// Whether its group may be that of an axis of which this holds.
    pub fn may_sum_over(&self, is: impl Fn(&Name) -> bool) -> bool {
        self.axes.as_ref().is_none_or(|own| own.iter().any(is))
    }

    /// Whether it takes a parameter for its name alone.
    fn takes_by_name(&self, name: &str) -> bool {
        let by_name = |t: &Test| match t {
            Test::NameContains(text) => contains(name, text) == Covered::Yes,
            Test::NameEnds(text) => name.ends_with(text.as_str()),
            _ => false,
        };
        self.when.iter().any(|all| !all.is_empty() && all.iter().all(by_name))
    }

    /// Whether a parameter of this name is covered; `marks` decides those that a rule knows.
    pub fn covers(&self, name: &str, known_mark: &dyn Fn(&str) -> bool) -> Covered {
        self.covers_made(name, "", known_mark)
    }

    /// The same of one of which code says how its layer is made: `nn.RMSNorm(dim)`.
    pub fn covers_made(&self, name: &str, made: &str, known_mark: &dyn Fn(&str) -> bool) -> Covered {
        if self.when.is_empty() {
            return Covered::Yes;
        }
        let mut best = Covered::No;
        for alternative in &self.when {
            let mut all = Covered::Yes;
            for test in alternative {
                let one = match test {
                    Test::NameEnds(text) => yes(name.ends_with(text.as_str()) || text.ends_with(name)),
                    Test::NameStarts(text) => {
                        if name.starts_with(text.as_str()) {
                            Covered::Yes
                        } else {
                            Covered::Perhaps
                        }
                    }
                    Test::NameContains(text) => contains(name, text),
                    Test::OfType(types) => takes::is_of_type(made, types),
                    Test::TypeContains(text) => takes::is_called(made, text),
                    // What a mark of the rules means is part of the parameter's type.
                    Test::Mark(mark) if known_mark(mark) => Covered::No,
                    Test::NoMark(mark) if known_mark(mark) => Covered::Yes,
                    Test::Mark(_) | Test::NoMark(_) | Test::Other => Covered::Perhaps,
                };
                all = match (all, one) {
                    (Covered::No, _) | (_, Covered::No) => Covered::No,
                    (Covered::Perhaps, _) | (_, Covered::Perhaps) => Covered::Perhaps,
                    (Covered::Yes, Covered::Yes) => Covered::Yes,
                };
            }
            best = match (best, all) {
                (Covered::Yes, _) | (_, Covered::Yes) => Covered::Yes,
                (Covered::Perhaps, _) | (_, Covered::Perhaps) => Covered::Perhaps,
                (Covered::No, Covered::No) => Covered::No,
            };
        }
        best
    }
}

pub(super) fn yes(holds: bool) -> Covered {
    if holds { Covered::Yes } else { Covered::No }
}

/// Whether a full name, of which the end is known, contains a text: of a parameter without a way, outer modules may bring it in.
fn contains(name: &str, text: &str) -> Covered {
    match (format!(".{name}").contains(text), name.contains('.')) {
        (true, _) => Covered::Yes,
        (false, true) => Covered::No,
        (false, false) => Covered::Perhaps,
    }
}

impl Reducers {
    pub fn new(
        project: &Project,
        rules: &RuleBook,
        files: &Files,
        taken: &Taken,
        memo: Option<&Memo>,
    ) -> Arc<Reducers> {
        let modules: Vec<_> = project.modules.ids().collect();
        let parts =
            kept_equals(memo, &modules, Task::Reducers, |module| of_module(project, rules, files, taken, module));
        let joined = |parts: Vec<Arc<Reducers>>| Reducers {
            all: parts.iter().flat_map(|part| part.all.iter().cloned()).collect(),
            collecting: parts.iter().flat_map(|part| part.collecting.iter().cloned()).collect(),
        };
        combined(memo, "reducers", parts, joined, |_, _| vec![Read::Reducers])
    }

    /// The reducers that may sum over one of these axes.
    pub fn over<'a>(&'a self, axes: &[Name]) -> impl Iterator<Item = &'a Reducer> {
        self.all.iter().filter(move |r| r.may_sum_over(|own| axes.contains(own)))
    }

    /// Whether the project itself does what a framework promises: all that reduces gradients over these axes is understood, and some of
    /// it goes by marks or names.
    pub fn replaces(&self, axes: &[Name], known_mark: &dyn Fn(&str) -> bool) -> bool {
        let understood = |r: &Reducer| {
            let tests = || r.when.iter().flatten();
            r.through.is_none() && !r.when.is_empty() && !tests().any(|t| matches!(t, Test::Other))
        };
        let chooses = |r: &Reducer| {
            let named = |t: &Test| match t {
                Test::Mark(mark) => known_mark(mark),
                Test::NameContains(_) => true,
                _ => false,
            };
            r.axes.is_some() && r.when.iter().flatten().any(named)
        };
        self.over(axes).any(chooses) && self.over(axes).all(understood)
    }

    /// Whether a reducer over these axes takes a parameter for its name alone.
    pub fn takes_by_name(&self, name: &str, axes: &[Name]) -> bool {
        self.over(axes).any(|r| r.takes_by_name(name))
    }

    /// The flags that decide whether gradients with a mark are summed at all, where one reducer of the project asks for it.
    pub fn guard_of<'a>(&'a self, mark: &str, axes: &'a [Name]) -> &'a [(Name, bool, Place)] {
        let mut over = self.over(axes);
        match (over.next(), over.next()) {
            (Some(one), None) if one.asks(mark) => &one.outer,
            _ => &[],
        }
    }

    /// The flags without which the gradient of a parameter is not summed: one reducer of the project takes it, for its name, under them.
    pub fn only_when(
        &self,
        name: &str,
        axes: &[Name],
        known_mark: &dyn Fn(&str) -> bool,
    ) -> Option<&[(Name, bool, Place)]> {
        let mut taken = None;
        for reducer in self.over(axes) {
            match (reducer.covers(name, known_mark), &reducer.only_when) {
                (Covered::No, _) => {}
                (Covered::Yes, Some(flags)) if taken.is_none() && reducer.takes_by_name(name) => taken = Some(flags),
                _ => return None,
            }
        }
        taken
            .map(Vec::as_slice)
            .filter(|flags| !flags.is_empty() && flags.iter().all(|(flag, _, _)| splits_tokens(flag)))
    }

    /// Whether some reducer over one of these axes covers a parameter, by the end of its name; `told` decides those that need not be asked.
    pub fn covers(
        &self,
        name: &str,
        axes: &[Name],
        known_mark: &dyn Fn(&str) -> bool,
        told: &dyn Fn(&Reducer) -> bool,
    ) -> Covered {
        self.covers_made((name, ""), axes, known_mark, told)
    }

    /// The same of one of which code says how its layer is made.
    pub fn covers_made(
        &self,
        (name, made): (&str, &str),
        axes: &[Name],
        known_mark: &dyn Fn(&str) -> bool,
        told: &dyn Fn(&Reducer) -> bool,
    ) -> Covered {
        let mut best = Covered::No;
        for reducer in self.over(axes).filter(|r| !told(r)) {
            match reducer.covers_made(name, made, known_mark) {
                Covered::Yes => return Covered::Yes,
                Covered::Perhaps => best = Covered::Perhaps,
                Covered::No => {}
            }
        }
        best
    }
}

fn of_module(project: &Project, rules: &RuleBook, files: &Files, taken: &Taken, module: ModuleId) -> Reducers {
    let mut out = Reducers::default();
    let m = &project.modules[module];
    let shown = taken.asked.shown(module, files[m.file].whole());
    if shown.gradients.is_empty() {
        return out;
    }
    let digest = taken.digests.of(project, module);
    let mut glancer = Glancer::new(project, rules, module, shown.communicates);
    let mut hooks: Vec<FuncRef> = Vec::new();
    for ((func, f), gist) in m.ir.funcs.iter_enumerated().zip(&digest.funcs) {
        if f.kind == FuncKind::ClassBody || !shown.gradients.inside(f.span) {
            continue;
        }
        let view = || View::new(project, rules, files, FuncRef { module, func });
        if !glancer.may_reduce(gist) {
            let text = files[m.file].slice(f.span);
            if HANDS_OVER.iter().all(|word| text.contains(word)) {
                out.all.extend(handed_over(&view()));
            }
            if COLLECTS.iter().all(|word| text.contains(word)) {
                out.collecting.extend(collecting(&view()));
            }
            continue;
        }
        let view = view();
        let before = out.all.len();
        of_function(&view, &mut out.all);
        hooks.extend(out.all[before..].iter().filter_map(|r| hooks_of_layers::hook_at(&view, r.place)));
        if out.all.len() == before {
            let hands_over = || HANDS_OVER.iter().all(|word| files[m.file].slice(f.span).contains(word));
            out.all.extend(otherwise(&view).or_else(|| hands_over().then(|| handed_over(&view))?));
        }
    }
    // Where a hook is registered says which parameters it is for.
    out.all.retain(|r| r.when != [[Test::Other]] || !hooks.contains(&r.func));
    out
}

fn of_function(view: &View<'_>, out: &mut Vec<Reducer>) {
    for step in 0..view.steps.len() {
        let Some(value) = view.value(step) else { continue };
        // Where the gradients are taken: the sum itself, or where they are put into the list that is summed.
        let looped = parameter_loop(view, step).filter(|_| sums_gradient(view, value));
        out.extend(of_one_parameter(view, step).filter(|_| looped.is_none()));
        let direct = looped.map(|head| (head, may_sum::of_step(view, step)));
        let (at, head, axes) = match direct {
            Some((head, Sums::Over(axes))) => (step, head, axes),
            Some((_, Sums::Never)) | None => {
                let chosen = || collected::chosen(view, step).filter(|_| sums_gradient(view, value));
                let Some((at, head)) = collected::taken(view, step).or_else(chosen) else { continue };
                let axes = match may_sum::of_step(view, step) {
                    Sums::Over(axes) => axes,
                    Sums::Never => None,
                };
                (at, head, axes)
            }
        };
        // Which modules are gone through says which parameters.
        let around = takes::module_loop(view, head);
        let head = around.unwrap_or(head);
        let outer = view.steps[head].guards.len();
        let mut inner = view.steps[at].guards[outer.min(view.steps[at].guards.len())..].to_vec();
        // What was kept of all may be summed of some, as another loop over them asks.
        if let Some(again) = parameter_loop(view, step).filter(|_| at != step) {
            inner.extend_from_slice(&view.steps[step].guards[view.steps[again].guards.len()..]);
        }
        let mut when = hooks_of_layers::of_loop(view, head).unwrap_or(vec![Vec::new()]);
        for guard in &inner {
            let mut alternatives = tests(view, &view.through(guard.test), guard.holds);
            if around.is_some() {
                takes::of_modules(&mut alternatives);
            }
            when =
                when.iter().flat_map(|a| alternatives.iter().map(move |b| [a.clone(), b.clone()].concat())).collect();
        }
        // A hook may ask further questions of its own.
        let is_direct = view.collective(value).is_some();
        when.iter_mut().filter(|all| all.is_empty() && !is_direct).for_each(|all| all.push(Test::Other));
        let everything = when.iter().any(Vec::is_empty);
        let guard = inner.last().map(|g| view.part(g.at, 0));
        out.push(Reducer {
            func: view.at,
            group: added_over(view, value).filter(|_| axes.is_none() && at == step),
            axes,
            place: view.place(view.steps[step].id),
            guard,
            when: if everything { Vec::new() } else { when },
            through: None,
            outer: view.steps[head].guards.iter().filter_map(|g| flag(view, g)).collect(),
            only_when: only_when(view, head, step, at),
        });
    }
}

/// A hook that a constructor puts on one parameter of a layer.
fn of_one_parameter(view: &View<'_>, step: usize) -> Option<Reducer> {
    let test = hooks_of_layers::of_parameter(view, step)?;
    let Sums::Over(axes) = may_sum::of_step(view, step) else { return None };
    let outer = view.steps[step].guards.iter().filter_map(|g| flag(view, g)).collect();
    Some(Reducer { outer, ..Reducer::at(view, step, axes, test) })
}

/// Whether the last part of a path has one of these words in it.
fn names(path: &str, words: &[&str]) -> bool {
    let last = path.rsplit('.').next().unwrap_or_default().to_lowercase();
    words.iter().any(|word| last.contains(word))
}

/// Whether a path may be that of something that reduces gradients, or of a method that is given what does.
pub fn may_name(path: &str) -> bool {
    names(path, &["reduce", "sync", "average", "hook", "grads"])
}

/// Whether the last part of a path is that of something that clears gradients.
fn names_zero(path: &str) -> bool {
    path.rsplit('.').next().is_some_and(|last| last.to_lowercase().starts_with("zero"))
}

/// A function that reads gradients and reduces, in a form that is not followed: it may cover anything.
fn otherwise(view: &View<'_>) -> Option<Reducer> {
    let reads = (0..view.steps.len()).any(|s| match view.value(s) {
        Some(Rvalue::Attr { name, .. }) => is_gradient_name(name),
        Some(Rvalue::Call { args, .. }) => args.iter().any(|a| match &a.value {
            Operand::Const(crate::ir::Const::Str(text)) => is_gradient_name(text),
            _ => false,
        }),
        Some(Rvalue::CallMethod { name, .. }) => {
            matches!(
                name.as_str(),
                "register_hook" | "register_post_accumulate_grad_hook" | "register_full_backward_hook"
            )
        }
        _ => false,
    });
    if !reads {
        return None;
    }
    let candidate = |step: &usize| {
        let Some(value) = view.value(*step) else { return false };
        match view.collective(value) {
            Some(call) => call.rule.op != "layer",
            None => view.callee(value).is_some_and(|path| may_name(&path) && !names_zero(&path)),
        }
    };
    let mut first = None;
    let mut all = Sums::Never;
    for step in (0..view.steps.len()).filter(candidate) {
        let sums = may_sum::of_step(view, step);
        if sums != Sums::Never {
            first = first.or(Some(step));
        }
        all = all.and(sums);
    }
    let (Some(step), Sums::Over(axes)) = (first, all) else { return None };
    Some(Reducer { through: called(view, step), ..Reducer::at(view, step, axes, Test::Other) })
}

/// A function that hands gradients with a mark to something of which nothing is known, and leaves its result alone: it may cover anything.
fn handed_over(view: &View<'_>) -> Option<Reducer> {
    let asks = |g: &super::view::Guard<'_>| view.through(g.test).any(&mut |e| e.call_of("getattr").is_some());
    let gradient = |o: &Operand| view.through(o).any(&mut |e| is_gradient(e));
    let unseen = |step: &usize| {
        view.steps[*step].guards.iter().any(asks)
            && (super::hidden_change::gives_away(view, *step, &gradient) || packs_gradient(view, *step))
    };
    let step = (0..view.steps.len()).find(unseen)?;
    Some(Reducer::at(view, step, None, Test::Other))
}

/// Whether a call is given a gradient in a dict, for a function that sums, or to make an object of the project of it.
fn packs_gradient(view: &View<'_>, step: usize) -> bool {
    let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(step) else { return false };
    let text = view.text(view.place(view.steps[step].id));
    let Some((_, given)) = text.split_once('(').filter(|(_, given)| given.contains(".grad")) else { return false };
    let object = || view.callee(value).is_some_and(|path| matches!(view.project.path(&path), Resolved::Class(_)));
    text.contains("reduce(") || given.contains("reduce,") || object()
}

/// A flag of a configuration that a guard tests.
fn flag(view: &View<'_>, guard: &super::view::Guard<'_>) -> Option<(Name, bool, Place)> {
    let (mut expr, mut holds) = (view.through(guard.test), guard.holds);
    while let Expr::Unary(UnOp::Not, inner) = expr {
        (expr, holds) = (*inner, !holds);
    }
    match expr {
        Expr::Attr(_, name) => Some((name, holds, view.part(guard.at, 0))),
        _ => None,
    }
}

/// Whether a flag says how activations are split, and not whether there are several ranks at all.
fn splits_tokens(flag: &str) -> bool {
    ["sequence_parallel", "seq_parallel"].iter().any(|w| flag.contains(w))
}

/// The flags under which alone a sum runs: of the loop that takes the gradients, and around the sum of what that has collected.
fn only_when(view: &View<'_>, head: usize, sum: usize, at: usize) -> Option<Vec<(Name, bool, Place)>> {
    let outer = &view.steps[head].guards;
    let mut flags = Vec::new();
    for guard in outer.iter() {
        flags.extend(all_flags(view, &view.through(guard.test), guard)?);
    }
    if sum != at {
        let known = |at| outer.iter().any(|g| g.at == at);
        // Whether there is anything to sum.
        let further = view.steps[sum].guards.iter().filter(|g| !known(g.at));
        let any =
            |g: &super::view::Guard<'_>| g.holds && matches!(view.expr(g.test), Expr::Local(_) | Expr::Call { .. });
        if !further.into_iter().all(any) {
            return None;
        }
    }
    Some(flags)
}

/// The flags that a guard needs together; that there are several ranks is understood.
fn all_flags(view: &View<'_>, expr: &Expr, guard: &super::view::Guard<'_>) -> Option<Vec<(Name, bool, Place)>> {
    needed(view, &super::near::deep(view, expr), guard.holds, view.part(guard.at, 0), 0)
}

fn needed(view: &View<'_>, expr: &Expr, holds: bool, place: Place, depth: usize) -> Option<Vec<(Name, bool, Place)>> {
    if depth > crate::infer::limits::MAX_VALUE_DEPTH {
        return None;
    }
    match expr {
        Expr::Unary(UnOp::Not, inner) => needed(view, inner, !holds, place, depth + 1),
        Expr::Bool { and, of } if *and == holds => {
            let parts: Option<Vec<_>> = of.iter().map(|e| needed(view, e, holds, place, depth + 1)).collect();
            parts.map(|all| all.concat())
        }
        Expr::Attr(_, name) => Some(vec![(name.clone(), holds, place)]),
        Expr::Compare(CmpOp::Gt, size, one)
            if holds && **one == Expr::Const(crate::ir::Const::Int(1)) && is_size(view, size) =>
        {
            Some(Vec::new())
        }
        _ => None,
    }
}

/// Whether an expression is the number of ranks of a group.
pub(super) fn is_size(view: &View<'_>, expr: &Expr) -> bool {
    let Expr::Call { callee, .. } = super::near::deep(view, expr) else { return false };
    let Some(path) = callee.path() else { return false };
    path == "torch.distributed.get_world_size"
        || matches!(view.rules.get(path), Some(Entry::Group(rule)) if rule.gives == crate::rules::Gives::Size)
}

/// The function of the project that a step calls.
fn called(view: &View<'_>, step: usize) -> Option<FuncRef> {
    match view.project.path(&view.callee(view.value(step)?)?) {
        Resolved::Func(at) => Some(at),
        _ => None,
    }
}

fn is_gradient_name(name: &str) -> bool {
    name == "grad" || name == "main_grad" || name.ends_with("_grad") && !name.starts_with("requires")
}

/// The axes of a group, where it is a call or an attribute that the rules name.
pub fn axes_of(view: &View<'_>, group: &Operand) -> Option<Vec<Name>> {
    let expr = view.through(group);
    let rule = match &expr {
        Expr::Call { callee, args, .. } if args.is_empty() => view.rules.get(callee.path()?),
        _ => None,
    };
    match rule {
        Some(Entry::Group(rule)) if rule.gives == crate::rules::Gives::Group => Some(rule.axes.clone()),
        _ => None,
    }
}

/// The name of the group over which a step adds.
fn added_over<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<Name> {
    let call = view.collective(value)?;
    let adds = super::mixed_mean::averages(view, &call) == Some(false);
    let group = view.expr(call.group.filter(|_| adds)?);
    view.name_of(&group).map(Name::from)
}

/// The loop over parameters around a step.
pub fn parameter_loop(view: &View<'_>, step: usize) -> Option<usize> {
    view.steps[step].loops.iter().rev().copied().find(|head| match view.steps[*head].stmt {
        Stmt::For { iter, .. } => over_parameters(&view.through(iter)),
        _ => false,
    })
}

/// Whether a loop runs over parameters: `m.parameters()`, `m.named_parameters()`, also inside `list` or `reversed`, or by the name of the
/// method: `unwrapped(m, "parameters")()`.
pub fn over_parameters(iter: &Expr) -> bool {
    let is_method = |e: &Expr| e.string().is_some_and(|text| text == "parameters" || text == "named_parameters");
    iter.any(&mut |e| match e {
        Expr::Call { callee, .. } => match &**callee {
            Expr::Call { args, .. } => args.iter().any(|(_, arg)| is_method(arg)),
            _ => matches!(callee.last_name(), Some("parameters" | "named_parameters")),
        },
        _ => false,
    })
}

/// Whether an operation sums a gradient over a group, or registers a hook.
fn sums_gradient<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    match view.collective(value) {
        Some(call) => {
            matches!(call.rule.op.as_str(), "all_reduce" | "reduce_scatter")
                && call.input.is_some_and(|i| collected::holds_gradient(view, i))
        }
        None => match value {
            Rvalue::CallMethod { name, .. } => {
                matches!(name.as_str(), "register_hook" | "register_post_accumulate_grad_hook")
            }
            // A helper that is given the gradient.
            Rvalue::Call { callee: Operand::Global(name), args }
                if args.iter().any(|a| is_gradient(&view.through(&a.value))) && reduces(view, name) =>
            {
                true
            }
            Rvalue::Call { args, .. } => {
                let callee = view.callee(value);
                let reduces = callee.is_some_and(|c| names(&c, &["reduce", "sync", "average"]));
                reduces && args.iter().any(|a| is_gradient(&view.through(&a.value)) || is_parameter(view, &a.value))
            }
            _ => false,
        },
    }
}

/// Whether a function of the project issues a collective itself.
fn reduces(view: &View<'_>, name: &Name) -> bool {
    let Some(Resolved::Func(func)) = view.project.member(view.at.module, name) else { return false };
    let helper = View::new(view.project, view.rules, view.files, func);
    (0..helper.steps.len()).any(|s| helper.value(s).is_some_and(|v| helper.collective(v).is_some()))
}

pub(super) fn is_parameter(view: &View<'_>, operand: &Operand) -> bool {
    match view.through(operand) {
        Expr::Element(iter) => over_parameters(&iter),
        Expr::Item(base, _) => matches!(&*base, Expr::Element(iter) if over_parameters(iter)),
        _ => false,
    }
}

pub fn is_gradient(expr: &Expr) -> bool {
    expr.any(&mut |e| matches!(e, Expr::Attr(_, name) if name == "grad" || name == "main_grad"))
}

/// Where a function puts the gradients of parameters with a mark into a list for its caller, which may sum them.
fn collecting(view: &View<'_>) -> Option<(Name, Place)> {
    (0..view.steps.len()).find_map(|step| {
        let head = collected::put_for_caller(view, step)?;
        let outer = view.steps[head].guards.len().min(view.steps[step].guards.len());
        view.steps[step].guards[outer..].iter().find_map(|guard| {
            let all = tests(view, &view.through(guard.test), guard.holds);
            let marks = |tests: &Vec<Test>| {
                tests.iter().find_map(|t| if let Test::Mark(m) = t { Some(m.clone()) } else { None })
            };
            let mark = marks(all.first()?)?;
            let always = all.iter().all(|tests| tests.contains(&Test::Mark(mark.clone())));
            let place = (head..step).find(|s| asks_for(view, *s, &mark)).map(|s| view.place(view.steps[s].id));
            always.then(|| (mark, place.unwrap_or(view.part(guard.at, 0))))
        })
    })
}

/// Whether a step asks something for a mark: `getattr(p, "mark", False)`.
fn asks_for(view: &View<'_>, step: usize, mark: &Name) -> bool {
    match view.value(step) {
        Some(Rvalue::Call { callee: Operand::Global(name), args }) if name == "getattr" => {
            args.get(1).is_some_and(|arg| view.through(&arg.value).string() == Some(mark))
        }
        _ => false,
    }
}
