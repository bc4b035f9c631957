//! Which values a gradient flows back to. In: a function, branch by branch. Out: for each returned value the arguments, submodules and
//! collectives that it is made from. Never: types; a function without a rule passes on only that a collective was met. Next: `cut.rs`.

mod calls;

use super::Lint;
use super::beside::Parts;
use super::cut::class_of;
use super::expr::Expr;
use super::made::{ASTRAY, Cut, GRADIENT, MODULE, Made, SUB, State, add, alike, get, join, set};
use super::submodules::parts;
use super::view::View;
use crate::ir::{Block, Item, LocalId, Node, Operand, Rvalue, Stmt, StmtId, UnOp};
use crate::project::{FuncRef, Resolved};
use crate::rules::{Entry, OpClass, ResultForm};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// Loops within loops whose bodies are walked a second time.
const MOST_LOOPS: usize = 8;

/// Integers, by the usual names.
const INTEGERS: &[&str] =
    &["idx", "ind", "mask", "count", "num", "len", "ids", "label", "target", "split", "size", "shape", "pos"];

/// Names of models that a training function calls.
const MODELS: &[&str] =
    &["model", "net", "network", "encoder", "backbone", "actor", "critic", "policy", "student", "ddp_model", "engine"];

/// Attributes of a tensor or of an output that carry its gradient.
const CARRY: &[&str] =
    &["T", "mT", "H", "real", "imag", "values", "logits", "last_hidden_state", "loss", "hidden_states"];

/// What a walk through a function found, whatever its caller gives it.
pub struct Walked {
    returns: Vec<Vec<Made>>,
    cuts: Vec<Cut>,
}

/// A walk through a function: how deep in calls, whether nothing may be left out, the loops around the call.
pub type Walks = (FuncRef, usize, bool, usize);

pub struct Walk<'w, 'a> {
    lint: &'w Lint<'a>,
    view: &'w View<'a>,
    steps: FxHashMap<StmtId, usize>,
    parts: Rc<Parts>,
    pub cuts: Vec<Cut>,
    /// What each `return` is made from; of a tuple each item.
    returns: Vec<Vec<Made>>,
    /// What each value is made from whose `backward()` is called.
    pub roots: Vec<Made>,
    /// Whether the function trains what it calls: a model that it is given.
    trains: bool,
    /// Whether all items of a tuple that a function returns count, and groups are taken to have several ranks.
    whole: bool,
    depth: usize,
    /// Loops around the statement that is looked at, those around the call of the function too.
    loops: usize,
    /// Found already; loops are walked twice.
    known: FxHashMap<(StmtId, usize), usize>,
    /// Whether conditions ask about training, by statement.
    asks: FxHashMap<StmtId, bool>,
}

impl<'w, 'a> Walk<'w, 'a> {
    pub fn of(lint: &'w Lint<'a>, view: &'w View<'a>) -> Option<Walk<'w, 'a>> {
        Walk::made(lint, view, 0, false, 0)
    }

    /// The same, where nothing may be left out that a gradient flows back through.
    pub fn whole(lint: &'w Lint<'a>, view: &'w View<'a>) -> Option<Walk<'w, 'a>> {
        Walk::made(lint, view, 0, true, 0)
    }

    fn made(lint: &'w Lint<'a>, view: &'w View<'a>, depth: usize, whole: bool, loops: usize) -> Option<Walk<'w, 'a>> {
        if view.func.is_generator || view.func.params.len() > 30 {
            return None;
        }
        let steps = view.steps.iter().enumerate().map(|(i, s)| (s.id, i)).collect();
        let mut walk = Walk {
            lint,
            view,
            steps,
            parts: parts(lint, view),
            cuts: Vec::new(),
            returns: Vec::new(),
            roots: Vec::new(),
            trains: depth == 0
                && (view.text(view.spot(view.func.span)).contains(".backward()") || gives_loss(lint, view)),
            whole,
            depth,
            loops,
            known: FxHashMap::default(),
            asks: FxHashMap::default(),
        };
        let mut state = State::default();
        for (i, param) in view.func.params.iter().enumerate() {
            if !is_integer(&param.name) && param.name != "self" {
                set(&mut state, param.local, 1 << i);
            }
        }
        walk.block(view.func.body(), &mut Some(state));
        Some(walk)
    }

    /// Whether the class of the function has submodules.
    pub fn has_submodules(&self) -> bool {
        !self.parts.submodules.is_empty()
    }

    /// What the results are made from, of a tuple the first.
    pub fn firsts(&self) -> Vec<Made> {
        firsts(&self.returns).collect()
    }

    fn block(&mut self, block: &Block, state: &mut Option<State>) {
        for node in block {
            if state.is_none() {
                return;
            }
            self.node(node, state);
        }
    }

    fn node(&mut self, node: &Node, state: &mut Option<State>) {
        let Some(s) = state.as_mut() else { return };
        match &node.stmt {
            Stmt::If { test, then, orelse } => {
                // Where a program runs on several ranks; and of flags, where it communicates.
                if let Some(side) = self.taken(node.id, test) {
                    return self.block(if side { then } else { orelse }, state);
                }
                let mut other = Some(s.clone());
                self.block(then, state);
                self.block(orelse, &mut other);
                join(state, other);
            }
            Stmt::For { dst, iter, body, orelse } => {
                let made = get(s, iter);
                self.rounds(state, &mut |walk, state| {
                    if let Some(s) = state.as_mut() {
                        set(s, *dst, made);
                    }
                    walk.block(body, state);
                });
                self.block(orelse, state);
            }
            Stmt::While { head, body, orelse, .. } => {
                self.rounds(state, &mut |walk, state| {
                    walk.block(head, state);
                    walk.block(body, state);
                });
                self.block(orelse, state);
            }
            Stmt::With { body, .. } => self.block(body, state),
            Stmt::Try { body, handlers, orelse, finally } => {
                let before = state.clone();
                self.block(body, state);
                self.block(orelse, state);
                for handler in handlers {
                    let mut other = before.clone();
                    self.block(handler, &mut other);
                    join(state, other);
                }
                self.block(finally, state);
            }
            Stmt::Return { value } => {
                let items = match self.view.source(value) {
                    Some((_, Rvalue::Build { kind: crate::ir::BuildKind::Tuple, items })) => {
                        items.iter().map(|(Item::One(o) | Item::Star(o))| get(s, o)).collect()
                    }
                    _ => vec![get(s, value)],
                };
                self.returns.push(items);
                *state = None;
            }
            Stmt::Raise | Stmt::Break | Stmt::Continue => {
                if matches!(node.stmt, Stmt::Raise) {
                    *state = None;
                }
            }
            simple => self.simple(node.id, simple, s),
        }
    }

    /// A loop: once, and once more if that changed what its next round starts from.
    fn rounds(&mut self, state: &mut Option<State>, round: &mut dyn FnMut(&mut Self, &mut Option<State>)) {
        let before = state.clone();
        self.loops += 1;
        round(self, state);
        join(state, before.clone());
        if self.loops <= MOST_LOOPS && !alike(before.as_ref(), state.as_ref()) {
            round(self, state);
            join(state, before);
        }
        self.loops -= 1;
    }

    fn simple(&mut self, id: StmtId, stmt: &Stmt, s: &mut State) {
        let Some(step) = self.steps.get(&id).copied() else { return };
        match stmt {
            Stmt::Assign { dst, .. } => {
                let view: &'w View<'a> = self.view;
                let Some(value) = view.value(step) else { return };
                let mut made = self.value(id, step, value, s);
                if view.without_gradient(step) || !view.is_temp(*dst) && is_integer(view.local_name(*dst)) {
                    made &= !GRADIENT;
                }
                set(s, *dst, made);
            }
            Stmt::Unpack { value, before, star, after } => {
                let made = get(s, value);
                let indices = self.gives_indices(value);
                for (i, local) in before.iter().chain(star).chain(after).enumerate() {
                    let integer = is_integer(self.view.local_name(*local)) || indices && i == 1;
                    set(s, *local, if integer { made & !GRADIENT } else { made });
                }
            }
            Stmt::SetItem { base, value, .. } => {
                let made = get(s, value);
                if let Some(root) = root(self.view, base) {
                    add(s, root, made);
                    // Another name of the same list.
                    if let [one] = self.view.defs(root)
                        && let Some(Rvalue::Use(Operand::Local(list))) = self.view.value(*one)
                    {
                        add(s, *list, made);
                    }
                }
            }
            Stmt::Append { collection, value, .. } => {
                let made = get(s, value);
                add(s, *collection, made);
            }
            _ => {}
        }
    }

    fn gives_indices(&self, value: &Operand) -> bool {
        let Some((_, made)) = self.view.source(value) else { return false };
        self.operation(made)
            .is_some_and(|op| matches!(op.result, ResultForm::ValuesIndices | ResultForm::ValuesIndicesIfDim))
    }

    fn operation(&self, value: &'a Rvalue) -> Option<&std::sync::Arc<crate::rules::OpRule>> {
        match value {
            // A method of the class may be called as one of tensors is: `self.gather(x)`.
            Rvalue::CallMethod { base, .. } if is_self(self.view, base) => None,
            Rvalue::CallMethod { base, name, .. } if !matches!(self.view.through(base), Expr::Path(_)) => {
                self.view.rules.tensor_method(name)
            }
            _ => self.view.rules.op(&self.view.callee(value)?),
        }
    }

    fn value(&mut self, id: StmtId, step: usize, value: &'a Rvalue, s: &mut State) -> Made {
        match value {
            Rvalue::Use(o) | Rvalue::Await(o) => get(s, o),
            Rvalue::Attr { base, name } if is_self(self.view, base) => {
                let sub = if self.parts.submodules.contains(name) { SUB } else { 0 };
                sub | if self.parts.parameters.contains(name) { MODULE } else { 0 }
            }
            Rvalue::Attr { base, name } if CARRY.contains(&name.as_str()) => get(s, base),
            Rvalue::Item { base, .. } => get(s, base),
            Rvalue::Binary { left, right, .. } => (get(s, left) | get(s, right)) & !SUB,
            Rvalue::InPlace { left, right, .. } => (get(s, left) | get(s, right)) & !SUB,
            Rvalue::Unary { op: UnOp::Neg | UnOp::Pos, operand } => get(s, operand),
            Rvalue::Build { items, .. } => {
                items.iter().map(|(Item::One(o) | Item::Star(o))| get(s, o)).fold(0, |a, b| a | b)
            }
            Rvalue::Call { .. } | Rvalue::CallMethod { .. } => self.call(id, step, value, s) & !SUB,
            _ => 0,
        }
    }

    /// What calls give that are known by their names: parts that are put back, backward passes, models that are trained.
    fn by_name(&mut self, value: &'a Rvalue, s: &mut State) -> Option<Made> {
        match value {
            // The part of this rank is put back.
            Rvalue::CallMethod { base, name, args } if name == "insert" && args.len() == 2 => {
                let made = get(s, &args[1].value);
                if let Some(root) = root(self.view, base) {
                    add(s, root, made);
                }
                Some(0)
            }
            Rvalue::CallMethod { base, name, args } if name == "backward" && args.is_empty() => {
                self.roots.push(get(s, base));
                Some(0)
            }
            Rvalue::Call { callee: Operand::Local(model), .. }
                if self.trains && MODELS.contains(&self.view.local_name(*model).as_str()) =>
            {
                Some(MODULE)
            }
            _ => None,
        }
    }

    fn call(&mut self, id: StmtId, step: usize, value: &'a Rvalue, s: &mut State) -> Made {
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return 0 };
        if let Some(made) = self.collective(id, step, value, s) {
            return made;
        }
        if let Some(made) = self.by_name(value, s) {
            return made;
        }
        let given: Made = args.iter().map(|a| get(s, &a.value)).fold(0, |a, b| a | b) & !SUB;
        let base = match value {
            Rvalue::CallMethod { base, name, .. } if is_self(self.view, base) => {
                if self.parts.submodules.contains(name) {
                    return if self.whole && is_loss(name) { given } else { given | MODULE };
                }
                0
            }
            Rvalue::CallMethod { base, name, .. } => {
                let made = get(s, base);
                if made & SUB != 0 {
                    let called = name == "forward";
                    return if called { given | MODULE } else { given & !GRADIENT };
                }
                if matches!(
                    name.as_str(),
                    "detach" | "detach_" | "item" | "tolist" | "numpy" | "size" | "dim" | "numel" | "argmax"
                ) {
                    return 0;
                }
                made
            }
            Rvalue::Call { callee, .. } if get(s, callee) & SUB != 0 => {
                let loss = self.whole && self.view.expr(callee).last_name().is_some_and(is_loss);
                return if loss { given } else { given | MODULE };
            }
            // The module itself.
            Rvalue::Call { callee, .. } if self.whole && is_self(self.view, callee) => return given | MODULE,
            _ => 0,
        };
        let all = given | base;
        if let Some(op) = self.operation(value).cloned() {
            let made = match op.class {
                OpClass::Plain(_) if !op.nondiff => all,
                OpClass::Plain(_) | OpClass::UnknownValues | OpClass::Opaque => all & !GRADIENT,
                OpClass::CopyInto => all,
                OpClass::Metadata | OpClass::Equal | OpClass::Fill | OpClass::Probe => 0,
            };
            let writes = op.in_place || op.class == OpClass::CopyInto;
            if writes
                && let Rvalue::CallMethod { base, .. } = value
                && let Some(root) = root(self.view, base)
            {
                add(s, root, made);
            }
            return made;
        }
        if let Some(Operand::Global(name)) = callee(value)
            && matches!(name.as_str(), "zip" | "enumerate" | "list" | "tuple" | "reversed" | "sum" | "checkpoint")
        {
            return all;
        }
        self.put_back(value, s);
        if let Some(made) = self.inside(id, value, s) {
            return made;
        }
        if self.whole && self.is_unseen_loss(value) {
            return all;
        }
        let astray = if self.whole && all & GRADIENT != 0 { ASTRAY } else { 0 };
        all & !GRADIENT | astray
    }
}

impl<'a> Walk<'_, 'a> {
    /// Whether a call is one of a loss, by the name of what is called, that is not of the project.
    fn is_unseen_loss(&self, value: &'a Rvalue) -> bool {
        let named = match value {
            Rvalue::CallMethod { base, name, .. } => is_self(self.view, base) && is_loss(name),
            Rvalue::Call { callee, .. } => match self.view.expr(callee) {
                Expr::Local(local) => is_loss(self.view.local_name(local)),
                other => other.last_name().is_some_and(is_loss),
            },
            _ => false,
        };
        named && target(self.lint, self.view, value).is_none()
    }
}

fn callee(value: &Rvalue) -> Option<&Operand> {
    match value {
        Rvalue::Call { callee, .. } => Some(callee),
        _ => None,
    }
}

/// What results are made from, of a tuple the first.
fn firsts(returns: &[Vec<Made>]) -> impl Iterator<Item = Made> {
    returns.iter().filter_map(|r| r.first().copied())
}

/// Attributes that hold a loss, which passes gradients on and has nothing to train.
fn is_loss(name: &str) -> bool {
    let name = name.to_lowercase();
    ["loss", "criterion", "entropy"].iter().any(|w| name.contains(w))
}

/// Whether what a method returns is a loss whose backward pass the base of its class takes.
pub fn gives_loss(lint: &Lint<'_>, view: &View<'_>) -> bool {
    class_of(view).is_some_and(|class| {
        // Where the class takes its steps itself, what it returns is shown.
        let text = view.text(view.spot(lint.project.class(class).span));
        if text.contains("manual_backward") || text.contains("automatic_optimization") {
            return false;
        }
        lint.settings.statics.external_bases(class).any(|base| match lint.rules.get(base) {
            Some(Entry::Intrinsic(rule)) => rule.does == "trainer-base" && rule.role("loss") == Some(&view.func.name),
            _ => false,
        })
    })
}

/// Names in the text of what communicates.
const TALKS: &[&str] = &["all_gather", "all_to_all", "reduce_scatter", "all_reduce"];

/// Whether a walk through a function may meet a collective.
pub fn may_cut(lint: &Lint<'_>, view: &View<'_>) -> bool {
    (0..view.steps.len()).filter_map(|step| view.value(step)).any(|value| match value {
        Rvalue::CallMethod { name, .. } if name == "apply" => true,
        Rvalue::Call { .. } | Rvalue::CallMethod { .. } => {
            view.collective(value).is_some() || target(lint, view, value).is_some_and(|(at, _)| talks(lint, at))
        }
        _ => false,
    })
}

/// Whether the text of a function names what communicates.
pub fn talks(lint: &Lint<'_>, at: FuncRef) -> bool {
    let text = lint.files[lint.project.file(at.module)].slice(lint.project.func(at).span);
    TALKS.iter().any(|name| text.contains(name))
}

fn is_self(view: &View<'_>, o: &Operand) -> bool {
    let first = view.func.params.first();
    matches!((o, first), (Operand::Local(l), Some(p)) if p.local == *l && p.name == "self")
}

/// The function of the project that a call calls, and whether as a method.
pub fn target<'a>(lint: &Lint<'_>, view: &View<'a>, value: &'a Rvalue) -> Option<(FuncRef, bool)> {
    if let Rvalue::CallMethod { base, name, .. } = value
        && is_self(view, base)
    {
        let class = class_of(view)?;
        return lint.settings.statics.linearized(class).iter().find_map(|c| {
            let at = lint.project.own_method(*c, name)?;
            let bound = lint.project.func(at).params.first().is_some_and(|p| p.name == "self");
            Some((at, bound))
        });
    }
    let path = view.callee(value)?;
    match lint.project.path(&path) {
        Resolved::Func(at) => Some((at, false)),
        _ => None,
    }
}

fn is_integer(name: &str) -> bool {
    name.split('_').any(|w| INTEGERS.iter().any(|i| w.starts_with(i)))
}

/// The variable behind items, views and `.data`.
pub fn root(view: &View<'_>, o: &Operand) -> Option<LocalId> {
    let Operand::Local(local) = o else { return None };
    if !view.is_temp(*local) {
        return Some(*local);
    }
    match view.defs(*local) {
        [one] => match view.value(*one)? {
            Rvalue::Use(b) | Rvalue::Item { base: b, .. } => root(view, b),
            Rvalue::Attr { base, name } if name == "data" => root(view, base),
            Rvalue::CallMethod { base, name, .. }
                if matches!(
                    name.as_str(),
                    "view" | "flatten" | "contiguous" | "squeeze" | "unsqueeze" | "narrow" | "chunk"
                ) =>
            {
                root(view, base)
            }
            _ => Some(*local),
        },
        _ => Some(*local),
    }
}
