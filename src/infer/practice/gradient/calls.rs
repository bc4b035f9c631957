//! What calls do to a gradient: collectives, and functions of the project by what a walk through them found. In: a call, with what its
//! arguments are made from. Out: what its result is made from; collectives through which no gradient comes back are noted. Never: types. Next:
//! `mod.rs`, which walks; `../made.rs`, the domain.

use super::super::asked_tests::{asks_training, several_ranks};
use super::super::cut::{class_of, decorators};
use super::super::expr::Expr;
use super::super::made::{
    ASTRAY, Communicates, Cut, GRADIENT, MODULE, Made, PARAMS, State, add, direct, get, made_from, set, through,
};
use super::super::named_axes::of_group;
use super::super::near;
use super::super::view::{CollectiveCall, View};
use super::{TALKS, Walk, Walked, firsts, root, talks, target};
use crate::ir::{Arg, ArgKind, Func, LocalId, Operand, ParamKind, Rvalue, Stmt, StmtId};
use crate::project::{FuncRef, Resolved};
use crate::rules::{Form, Pattern, Transition};
use crate::source::Name;
use crate::types::AxisType;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::rc::Rc;

const MOST_CUTS: usize = 40;

/// Calls that are followed into one another.
const MOST_DEPTH: usize = 2;

/// Collectives, and functions of the project.
impl<'w, 'a> Walk<'w, 'a> {
    fn note(&mut self, key: (StmtId, usize), cut: Cut) -> Option<usize> {
        if let Some(k) = self.known.get(&key) {
            self.cuts[*k].input |= cut.input;
            return Some(*k);
        }
        if self.cuts.len() >= MOST_CUTS {
            return None;
        }
        self.cuts.push(cut);
        self.known.insert(key, self.cuts.len() - 1);
        Some(self.cuts.len() - 1)
    }

    /// What the result of a collective is made from; buffers are changed.
    pub fn collective(&mut self, id: StmtId, step: usize, value: &'a Rvalue, s: &mut State) -> Option<Made> {
        let view = self.view;
        if let Some(class) = self.applied(value) {
            let Rvalue::CallMethod { args, .. } = value else { return None };
            let input = args.first().map_or(0, |a| get(s, &a.value));
            let cut = self.cut(id, class, Communicates::Differentiable, input, false);
            return Some(input | self.note((id, 0), cut).map_or(0, through));
        }
        let call = view.collective(value)?;
        let input = call.input?;
        let made = get(s, input);
        let name = super::super::lost::last(&call.rule.name);
        if call.rule.op == "reinterpret" {
            return Some(made);
        }
        if call.rule.differentiable {
            let splits = call.rule.op == "convert" && call.rule.transitions.iter().any(|(_, t)| splits(t));
            let axes = axes_of(view, &call);
            let equal = !call.rule.transitions.is_empty() && call.rule.transitions.iter().all(|(_, t)| is_equal(t));
            let cut = Cut { splits, equal, axes, ..self.cut(id, name, Communicates::Differentiable, made, false) };
            return Some(made | self.note((id, 0), cut).map_or(0, through));
        }
        if view.without_gradient(step) || self.is_guarded(step) || call.rule.op == "layer" {
            return Some(0);
        }
        let how = match call.rule.form {
            Form::InPlace => Communicates::InPlace,
            Form::IntoOutput | Form::IntoList => Communicates::IntoBuffer,
            Form::Result | Form::SrcDst => return Some(0),
        };
        let sums =
            call.rule.reduce_op.is_none() || !call.args.iter().any(|a| view.through(&a.value).is_other_reduction());
        if made & GRADIENT == 0 || !sums {
            return Some(0);
        }
        let computed = matches!(input, Operand::Local(l) if !view.is_param(*l));
        let cut = Cut { axes: axes_of(view, &call), ..self.cut(id, name, how, made, computed) };
        let Some(k) = self.note((id, 0), cut) else { return Some(0) };
        if how == Communicates::InPlace {
            if let Some(root) = root(view, input) {
                add(s, root, through(k));
            }
            return Some(0);
        }
        if let Some(buffer) = call.output.and_then(|o| root(view, o)) {
            let had = made_from(s, buffer);
            let kept = if had & made & GRADIENT != 0 { direct(k) | had } else { 0 };
            set(s, buffer, kept | through(k));
        }
        for local in sources(view, input) {
            add(s, local, direct(k));
        }
        Some(0)
    }

    /// A function of the project that writes entries of a list that it is given puts its other arguments there.
    pub fn put_back(&self, value: &'a Rvalue, s: &mut State) {
        let view = self.view;
        let (at, args, own) = match value {
            Rvalue::Call { callee, args } => (near::function(view, callee), args, 0),
            Rvalue::CallMethod { base, name, args } if near::is_self(view, base) => {
                (class_of(view).and_then(|class| self.lint.project.own_method(class, name)), args, 1)
            }
            _ => return,
        };
        let Some(at) = at else { return };
        let inner = near::shared(view, at);
        for (i, arg) in args.iter().enumerate() {
            let Some(param) = inner.func.params.get(i + own).map(|p| Operand::Local(p.local)) else { continue };
            let Some(list) = root(view, &arg.value).filter(|_| arg.kind == ArgKind::Positional) else { continue };
            let writes = |i: usize| match (inner.steps[i].stmt, inner.value(i)) {
                (Stmt::SetItem { base, .. }, _) => *base == param,
                (_, Some(Rvalue::CallMethod { base, name, .. })) => *base == param && name == "insert",
                _ => false,
            };
            if (0..inner.steps.len()).any(writes) {
                let others = args.iter().enumerate().filter(|(j, _)| *j != i);
                let made = others.map(|(_, a)| get(s, &a.value)).fold(0, |a, b| a | b);
                add(s, list, made);
            }
        }
    }

    fn cut(&self, id: StmtId, name: Name, how: Communicates, input: Made, computed: bool) -> Cut {
        let place = self.view.place(id);
        let step = self.steps.get(&id).copied().unwrap_or(0);
        Cut { place, name, how, input, computed, axes: None, splits: false, equal: false, step, call: None }
    }

    /// The autograd function of the project that a call applies and whose forward communicates: one that only its backward makes a
    /// collective of has a sum where a raw one may stand later on.
    fn applied(&self, value: &'a Rvalue) -> Option<Name> {
        let Rvalue::CallMethod { base, name, .. } = value else { return None };
        if name != "apply" {
            return None;
        }
        let Expr::Path(path) = self.view.through(base) else { return None };
        let Resolved::Class(class) = self.lint.project.path(&path) else { return None };
        let c = self.lint.project.class(class);
        let file = self.lint.project.file(class.module);
        let talks = |span| TALKS.iter().any(|n| self.lint.files[file].slice(span).contains(n));
        let forward = c.methods.iter().find(|(name, _)| name == "forward");
        let forward = forward.map(|(_, func)| FuncRef { module: class.module, func: *func });
        let talks = talks(c.span)
            && forward.is_none_or(|at| talks(self.lint.project.func(at).span) || self.calls_what_talks(at));
        (talks && self.lint.is_autograd(class)).then(|| c.name.clone())
    }

    /// Whether a function calls one of the project that names a collective.
    fn calls_what_talks(&self, at: FuncRef) -> bool {
        let view = self.view.other(at);
        (0..view.steps.len()).any(|step| {
            let path = view.value(step).and_then(|value| view.callee(value));
            let Some(Resolved::Func(called)) = path.map(|path| self.lint.project.path(&path)) else { return false };
            let text =
                self.lint.files[self.lint.project.file(called.module)].slice(self.lint.project.func(called).span);
            TALKS.iter().any(|n| text.contains(n))
        })
    }

    /// Whether a condition around a step asks about training or gradients.
    pub fn is_guarded(&mut self, step: usize) -> bool {
        let view = self.view;
        view.steps[step].guards.iter().any(|g| *self.asks.entry(g.at).or_insert_with(|| asks_training(view, g.test)))
    }

    /// A walk through a function that is called here, made once for all its calls.
    fn walked(&self, at: FuncRef) -> Option<Rc<Walked>> {
        if self.depth == MOST_DEPTH {
            return None;
        }
        let of = (at, self.depth + 1, self.whole, self.loops);
        let walked = || {
            let view = self.view.other(at);
            let walk = Walk::made(self.lint, &view, self.depth + 1, self.whole, self.loops)?;
            Some(Walked { returns: walk.returns, cuts: walk.cuts })
        };
        match self.view.beside() {
            Some(beside) => beside.walk(of, walked),
            None => walked().map(Rc::new),
        }
    }

    /// The side of a test that counts alone.
    pub fn taken(&self, id: StmtId, test: &Operand) -> Option<bool> {
        several_ranks(self.view, test).or_else(|| if self.whole { self.communicating(id, test) } else { None })
    }

    /// The side of a test of a flag on which alone anything communicates: a configuration has it so.
    pub fn communicating(&self, id: StmtId, test: &Operand) -> Option<bool> {
        let view = self.view;
        // An argument, or an attribute of the object, may be set where nothing is trained alone.
        let is_own = |base: &Expr| matches!(base, Expr::Local(l) if view.local_name(*l) == "self");
        if !matches!(view.expr(test), Expr::Attr(base, _) if !is_own(&base)) || asks_training(view, test) {
            return None;
        }
        let mut found = None;
        for (i, step) in view.steps.iter().enumerate() {
            let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(i) else { continue };
            let Some(guard) = step.guards.iter().find(|g| g.at == id) else { continue };
            if found == Some(guard.holds) {
                continue;
            }
            let communicates = self.applied(value).is_some()
                || view.collective(value).is_some()
                || target(self.lint, view, value).is_some_and(|(at, _)| talks(self.lint, at));
            if communicates {
                if found.is_some() {
                    return None;
                }
                found = Some(guard.holds);
            }
        }
        found
    }

    /// The result of a function of the project, by what its arguments are made from.
    pub fn inside(&mut self, id: StmtId, value: &'a Rvalue, s: &mut State) -> Option<Made> {
        let (at, method) = target(self.lint, self.view, value)?;
        let func = self.lint.project.func(at);
        let talks = talks(self.lint, at);
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
        if !talks && !args.iter().any(|a| get(s, &a.value) & GRADIENT != 0) {
            return None;
        }
        let untrained = |d: &Name| d.contains("no_grad") || d.contains("inference_mode");
        // What is gathered for a loss without gradients is as lost as behind a collective that has none.
        if !self.whole && decorators(self.lint, at).iter().any(untrained) {
            return Some(0);
        }
        // What only raises is overridden elsewhere.
        let walk = self.walked(at).filter(|w| !w.returns.is_empty())?;
        let mut given: FxHashMap<usize, (Made, &Operand)> = FxHashMap::default();
        let mut next = usize::from(method);
        for (i, arg) in args.iter().enumerate() {
            let slots = match &arg.kind {
                ArgKind::Positional => next..next + 1,
                ArgKind::Keyword(k) => func.params.iter().position(|p| p.name == *k).map_or(0..0, |at| at..at + 1),
                ArgKind::Star => starred(func, next, &args[i + 1..])?,
                ArgKind::DoubleStar => return None,
            };
            if !matches!(arg.kind, ArgKind::Keyword(_)) {
                next = slots.end;
            }
            given.extend(slots.map(|slot| (slot, (get(s, &arg.value), &arg.value))));
        }
        let returned = firsts(&walk.returns).fold(0, |a, b| a | b);
        let from = |bits: Made| {
            given.iter().filter(|(i, _)| bits & (1 << **i) != 0).map(|(_, (m, _))| *m).fold(0, |a, b| a | b)
        };
        let all = walk.returns.iter().flatten().fold(0, |a, b| a | b);
        let kept = if self.whole { all } else { returned };
        let mut made = from(kept & PARAMS) | kept & (MODULE | ASTRAY);
        for (k, cut) in walk.cuts.iter().enumerate() {
            let reaches = returned & through(k) != 0 && returned & direct(k) == 0;
            if !reaches || cut.how != Communicates::IntoBuffer || self.is_guarded(*self.steps.get(&id)?) {
                continue;
            }
            let input = from(cut.input & PARAMS) | cut.input & MODULE;
            let call = Some(self.view.place(id));
            let cut = Cut { input, call, step: *self.steps.get(&id)?, ..cut.clone() };
            let Some(own) = self.note((id, k + 1), cut) else { continue };
            made |= through(own);
            for (_, (_, operand)) in given.iter().filter(|(i, _)| walk.cuts[k].input & (1 << **i) != 0) {
                for local in sources(self.view, operand) {
                    add(s, local, direct(own));
                }
            }
        }
        Some(made)
    }
}

/// The parameters that `*values` fills from one on: all but those that the arguments after it fill. `None`: that is not told.
fn starred(func: &Func, from: usize, after: &[Arg]) -> Option<Range<usize>> {
    let plain = func.params.iter().all(|p| p.kind == ParamKind::Normal && !p.has_default);
    let single = after.iter().all(|a| a.kind == ArgKind::Positional);
    let end = func.params.len().checked_sub(after.len()).filter(|end| *end >= from)?;
    (plain && single).then_some(from..end)
}

/// The axes over which a collective runs, where its group or its rule tells them by name.
fn axes_of(view: &View<'_>, call: &CollectiveCall<'_>) -> Option<Vec<Name>> {
    match call.group {
        Some(group) => of_group(view, &view.through(group)),
        None => Some(call.rule.default_group.clone()).filter(|axes| !axes.is_empty()),
    }
}

/// Whether a conversion gives each rank a part of what all have: its backward gathers, and sums nothing.
fn splits(t: &Transition) -> bool {
    let parts = |p: &Pattern| p.any_shard || p.shard.is_some();
    parts(&t.result) && !parts(&t.source)
}

/// Whether what a collective makes of parts has a gradient that every rank has: it is not summed on the way back, nor is that of a sum in place.
fn is_equal(t: &Transition) -> bool {
    t.result.shard.is_none() && !t.result.any_shard && t.result.set == AxisType::I
}

/// A value and those that it is a copy or view of.
fn sources(view: &View<'_>, o: &Operand) -> Vec<LocalId> {
    let mut out = Vec::new();
    let mut at = o;
    while let Operand::Local(local) = at {
        if out.contains(local) || out.len() > 8 {
            break;
        }
        out.push(*local);
        match view.source(at) {
            Some((_, Rvalue::Use(b) | Rvalue::CallMethod { base: b, .. } | Rvalue::Item { base: b, .. })) => at = b,
            _ => break,
        }
    }
    out
}
