//! Which values a gradient flows back to. In: a function, branch by branch. Out: for each returned value the arguments, submodules and
//! collectives that it is made from. Never: types; a function without a rule passes on only that a collective was met. Next: `cut.rs`.

use super::Lint;
use super::cut::{class_of, decorators, is_module};
use super::expr::Expr;
use super::view::View;
use crate::ir::{ArgKind, Block, CmpOp, Item, LocalId, Node, Operand, Rvalue, Stmt, StmtId, UnOp};
use crate::project::{FuncRef, Resolved};
use crate::rules::{Entry, Form, OpClass, ResultForm};
use crate::source::{Name, Place};
use rustc_hash::{FxHashMap, FxHashSet};

/// What a value is made from, differentiably: bits of arguments, of submodules and parameters, and two for each collective.
type Made = u128;
type State = FxHashMap<LocalId, Made>;

/// A submodule itself, to be called.
const SUB: Made = 1 << 30;
/// The result of a submodule, or a parameter.
pub const MODULE: Made = 1 << 31;
/// Arguments of the function.
pub const PARAMS: Made = SUB - 1;
const GRADIENT: Made = MODULE | PARAMS;
const MOST_CUTS: usize = 40;
/// Through a call of which nothing is known: a gradient may or may not flow back there.
pub const ASTRAY: Made = 1 << 127;

/// Through the collective.
pub fn through(k: usize) -> Made {
    1 << (32 + 2 * k)
}

/// From what the collective was given, past it.
pub fn direct(k: usize) -> Made {
    1 << (33 + 2 * k)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Communicates {
    IntoBuffer,
    InPlace,
    Differentiable,
}

/// A collective in the function or in one that it calls.
#[derive(Clone, Debug)]
pub struct Cut {
    pub place: Place,
    pub name: Name,
    pub how: Communicates,
    pub input: Made,
    /// What it is given is the result of an operation.
    pub computed: bool,
    /// The step of the function that is looked at.
    pub step: usize,
    /// Where the function is called that holds it.
    pub call: Option<Place>,
}

/// Integers, by the usual names.
const INTEGERS: &[&str] =
    &["idx", "ind", "mask", "count", "num", "len", "ids", "label", "target", "split", "size", "shape", "pos"];

/// Names of models that a training function calls.
const MODELS: &[&str] =
    &["model", "net", "network", "encoder", "backbone", "actor", "critic", "policy", "student", "ddp_model", "engine"];

/// Attributes of a tensor or of an output that carry its gradient.
const CARRY: &[&str] =
    &["T", "mT", "H", "real", "imag", "values", "logits", "last_hidden_state", "loss", "hidden_states"];

pub struct Walk<'w, 'a> {
    lint: &'w Lint<'a>,
    view: &'w View<'a>,
    steps: FxHashMap<StmtId, usize>,
    submodules: FxHashSet<Name>,
    parameters: FxHashSet<Name>,
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
    /// Found already; loops are walked twice.
    known: FxHashMap<(StmtId, usize), usize>,
}

impl<'w, 'a> Walk<'w, 'a> {
    pub fn of(lint: &'w Lint<'a>, view: &'w View<'a>, depth: usize) -> Option<Walk<'w, 'a>> {
        Walk::made(lint, view, depth, false)
    }

    /// The same, where nothing may be left out that a gradient flows back through.
    pub fn whole(lint: &'w Lint<'a>, view: &'w View<'a>) -> Option<Walk<'w, 'a>> {
        Walk::made(lint, view, 0, true)
    }

    fn made(lint: &'w Lint<'a>, view: &'w View<'a>, depth: usize, whole: bool) -> Option<Walk<'w, 'a>> {
        if view.func.is_generator || view.func.params.len() > 30 || depth > 2 {
            return None;
        }
        let steps = view.steps.iter().enumerate().map(|(i, s)| (s.id, i)).collect();
        let (submodules, parameters) = parts(lint, view);
        let mut walk = Walk {
            lint,
            view,
            steps,
            submodules,
            parameters,
            cuts: Vec::new(),
            returns: Vec::new(),
            roots: Vec::new(),
            trains: depth == 0
                && (view.text(view.spot(view.func.span)).contains(".backward()") || gives_loss(lint, view)),
            whole,
            depth,
            known: FxHashMap::default(),
        };
        let mut state = State::default();
        for (i, param) in view.func.params.iter().enumerate() {
            if !is_integer(&param.name) && param.name != "self" {
                state.insert(param.local, 1 << i);
            }
        }
        walk.block(&view.func.body, &mut Some(state));
        Some(walk)
    }

    /// Whether the class of the function has submodules.
    pub fn has_submodules(&self) -> bool {
        !self.submodules.is_empty()
    }

    /// What the results are made from, of a tuple the first.
    pub fn firsts(&self) -> Vec<Made> {
        self.returns.iter().filter_map(|r| r.first().copied()).collect()
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
                let before = state.clone();
                for _ in 0..2 {
                    if let Some(s) = state.as_mut() {
                        s.insert(*dst, made);
                    }
                    self.block(body, state);
                    join(state, before.clone());
                }
                self.block(orelse, state);
            }
            Stmt::While { head, body, orelse, .. } => {
                let before = state.clone();
                for _ in 0..2 {
                    self.block(head, state);
                    self.block(body, state);
                    join(state, before.clone());
                }
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
                s.insert(*dst, made);
            }
            Stmt::Unpack { value, before, star, after } => {
                let made = get(s, value);
                let indices = self.gives_indices(value);
                for (i, local) in before.iter().chain(star).chain(after).enumerate() {
                    let integer = is_integer(self.view.local_name(*local)) || indices && i == 1;
                    s.insert(*local, if integer { made & !GRADIENT } else { made });
                }
            }
            Stmt::SetItem { base, value, .. } => {
                let made = get(s, value);
                if let Some(root) = root(self.view, base) {
                    *s.entry(root).or_default() |= made;
                }
            }
            Stmt::Append { collection, value, .. } => {
                let made = get(s, value);
                *s.entry(*collection).or_default() |= made;
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
                let sub = if self.submodules.contains(name) { SUB } else { 0 };
                sub | if self.parameters.contains(name) { MODULE } else { 0 }
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

    fn call(&mut self, id: StmtId, step: usize, value: &'a Rvalue, s: &mut State) -> Made {
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return 0 };
        if let Some(made) = self.collective(id, step, value, s) {
            return made;
        }
        match value {
            Rvalue::CallMethod { base, name, args } if name == "backward" && args.is_empty() => {
                self.roots.push(get(s, base));
                return 0;
            }
            Rvalue::Call { callee: Operand::Local(model), .. }
                if self.trains && MODELS.contains(&self.view.local_name(*model).as_str()) =>
            {
                return MODULE;
            }
            _ => {}
        }
        let given: Made = args.iter().map(|a| get(s, &a.value)).fold(0, |a, b| a | b) & !SUB;
        let base = match value {
            Rvalue::CallMethod { base, name, .. } if is_self(self.view, base) => {
                if self.submodules.contains(name) {
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
                *s.entry(root).or_default() |= made;
            }
            return made;
        }
        if let Some(Operand::Global(name)) = callee(value)
            && matches!(name.as_str(), "zip" | "enumerate" | "list" | "tuple" | "reversed" | "sum" | "checkpoint")
        {
            return all;
        }
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
    fn collective(&mut self, id: StmtId, step: usize, value: &'a Rvalue, s: &mut State) -> Option<Made> {
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
        let name = super::lost::last(&call.rule.name);
        if call.rule.differentiable {
            let cut = self.cut(id, name, Communicates::Differentiable, made, false);
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
        let sums = call.rule.reduce_op.is_none() || !call.args.iter().any(|a| other_reduction(&view.through(&a.value)));
        if made & GRADIENT == 0 || !sums {
            return Some(0);
        }
        let computed = matches!(input, Operand::Local(l) if !view.is_param(*l));
        let cut = self.cut(id, name, how, made, computed);
        let Some(k) = self.note((id, 0), cut) else { return Some(0) };
        if how == Communicates::InPlace {
            if let Some(root) = root(view, input) {
                *s.entry(root).or_default() |= through(k);
            }
            return Some(0);
        }
        if let Some(buffer) = call.output.and_then(|o| root(view, o)) {
            let had = s.get(&buffer).copied().unwrap_or(0);
            let kept = if had & made & GRADIENT != 0 { direct(k) | had } else { 0 };
            s.insert(buffer, kept | through(k));
        }
        for local in sources(view, input) {
            *s.entry(local).or_default() |= direct(k);
        }
        Some(0)
    }

    fn cut(&self, id: StmtId, name: Name, how: Communicates, input: Made, computed: bool) -> Cut {
        let place = self.view.place(id);
        let step = self.steps.get(&id).copied().unwrap_or(0);
        Cut { place, name, how, input, computed, step, call: None }
    }

    /// The autograd function of the project that a call applies and that communicates.
    fn applied(&self, value: &'a Rvalue) -> Option<Name> {
        let Rvalue::CallMethod { base, name, .. } = value else { return None };
        if name != "apply" {
            return None;
        }
        let Expr::Path(path) = self.view.through(base) else { return None };
        let Resolved::Class(class) = self.lint.project.path(&path) else { return None };
        let c = self.lint.project.class(class);
        let file = self.lint.project.file(class.module);
        let text = self.lint.files[file].slice(c.span);
        let talks = TALKS.iter().any(|n| text.contains(n));
        (talks && self.lint.is_autograd(class)).then(|| c.name.clone())
    }

    /// Whether a condition around a step asks about training or gradients.
    fn is_guarded(&self, step: usize) -> bool {
        self.view.steps[step].guards.iter().any(|g| self.asks_training(g.test))
    }

    fn asks_training(&self, test: &Operand) -> bool {
        self.view.expr(test).any(&mut |e| {
            let name = match e {
                Expr::Local(l) => Some(self.view.local_name(*l).as_str()),
                other => other.last_name(),
            };
            name.is_some_and(|n| ["training", "grad", "infer", "eval", "generat"].iter().any(|w| n.contains(w)))
        })
    }

    /// The side of a test that counts alone.
    fn taken(&self, id: StmtId, test: &Operand) -> Option<bool> {
        several_ranks(self.view, test).or_else(|| self.communicating(id).filter(|_| self.whole))
    }

    /// The side of a test of a flag on which alone anything communicates: a configuration has it so.
    fn communicating(&self, id: StmtId) -> Option<bool> {
        let view = self.view;
        let mut found = None;
        for (i, step) in view.steps.iter().enumerate() {
            let Some(guard) = step.guards.iter().find(|g| g.at == id) else { continue };
            let Some(value) = view.value(i) else { continue };
            let calls = matches!(value, Rvalue::Call { .. } | Rvalue::CallMethod { .. });
            if !calls || found == Some(guard.holds) {
                continue;
            }
            let communicates = self.applied(value).is_some()
                || view.collective(value).is_some()
                || target(self.lint, view, value).is_some_and(|(at, _)| talks(self.lint, at));
            if communicates {
                let flag = match view.expr(guard.test) {
                    Expr::Attr(..) => true,
                    Expr::Local(local) => view.is_param(local),
                    _ => false,
                };
                if found.is_some() || !flag || self.asks_training(guard.test) {
                    return None;
                }
                found = Some(guard.holds);
            }
        }
        found
    }

    /// The result of a function of the project, by what its arguments are made from.
    fn inside(&mut self, id: StmtId, value: &'a Rvalue, s: &mut State) -> Option<Made> {
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
        let view = self.lint.view(at);
        // What only raises is overridden elsewhere.
        let walk = Walk::made(self.lint, &view, self.depth + 1, self.whole).filter(|w| !w.returns.is_empty())?;
        let mut given: FxHashMap<usize, (Made, &Operand)> = FxHashMap::default();
        for (i, arg) in args.iter().enumerate() {
            let slot = match &arg.kind {
                ArgKind::Positional => Some(i + usize::from(method)),
                ArgKind::Keyword(k) => func.params.iter().position(|p| p.name == *k),
                ArgKind::Star | ArgKind::DoubleStar => return None,
            };
            if let Some(slot) = slot {
                given.insert(slot, (get(s, &arg.value), &arg.value));
            }
        }
        let returned = walk.firsts().into_iter().fold(0, |a, b| a | b);
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
                    *s.entry(local).or_default() |= direct(own);
                }
            }
        }
        Some(made)
    }
}

/// Whether a condition that asks for the number of ranks holds for several of them; `None` if it asks for something else.
fn several_ranks(view: &View<'_>, test: &Operand) -> Option<bool> {
    asks_ranks(view, &view.expr(test))
}

fn asks_ranks(view: &View<'_>, test: &Expr) -> Option<bool> {
    fn name<'e>(view: &'e View<'_>, e: &'e Expr) -> Option<&'e str> {
        match e {
            Expr::Local(local) => Some(view.local_name(*local).as_str()),
            Expr::Call { callee, .. } => name(view, callee),
            other => other.last_name(),
        }
    }
    match test {
        Expr::Unary(UnOp::Not, inner) => asks_ranks(view, inner).map(|holds| !holds),
        // Where a program runs on several ranks, flags beside that are as the branch wants them.
        Expr::Bool { and, of } => {
            let answers: Vec<Option<bool>> = of.iter().map(|e| asks_ranks(view, e)).collect();
            let strong = answers.contains(&Some(!and));
            let all = answers.iter().all(Option::is_some);
            match (strong, all || *and) {
                (true, _) => Some(!and),
                (false, true) if answers.contains(&Some(*and)) => Some(*and),
                _ => None,
            }
        }
        Expr::Compare(op, size, one) => {
            let counts = |name: &str| name == "world" || name.ends_with("world_size") || name == "num_ranks";
            let Expr::Const(crate::ir::Const::Int(one)) = &**one else { return None };
            match (counts(name(view, size)?), op, *one) {
                (true, CmpOp::Gt | CmpOp::Ne, 1) | (true, CmpOp::Ge, 2) => Some(true),
                (true, CmpOp::Eq | CmpOp::Le, 1) | (true, CmpOp::Lt, 2) => Some(false),
                _ => None,
            }
        }
        other => {
            let name = name(view, other)?;
            let has = |word: &str| name.split('_').any(|w| w == word);
            let runs = ["distributed", "dist", "ddp"].iter().any(|w| name.contains(w) && has(w));
            (name == "is_initialized" || name == "is_available" || runs && !has("not")).then_some(true)
        }
    }
}

/// Attributes that hold a loss, which passes gradients on and has nothing to train.
fn is_loss(name: &str) -> bool {
    let name = name.to_lowercase();
    ["loss", "criterion", "entropy"].iter().any(|w| name.contains(w))
}

/// Whether what a method returns is a loss whose backward pass the base of its class takes.
pub fn gives_loss(lint: &Lint<'_>, view: &View<'_>) -> bool {
    class_of(view).is_some_and(|class| {
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
fn talks(lint: &Lint<'_>, at: FuncRef) -> bool {
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
            let methods = &lint.project.class(*c).methods;
            let (_, func) = methods.iter().find(|(n, _)| n == name)?;
            let at = FuncRef { module: c.module, func: *func };
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

fn join(state: &mut Option<State>, other: Option<State>) {
    match (state.as_mut(), other) {
        (Some(s), Some(other)) => {
            for (local, made) in other {
                *s.entry(local).or_default() |= made;
            }
        }
        (None, other) => *state = other,
        (Some(_), None) => {}
    }
}

fn get(s: &State, o: &Operand) -> Made {
    match o {
        Operand::Local(l) => s.get(l).copied().unwrap_or(0),
        _ => 0,
    }
}

fn is_integer(name: &str) -> bool {
    name.split('_').any(|w| INTEGERS.iter().any(|i| w.starts_with(i)))
}

/// Any reduction but a sum or a mean.
fn other_reduction(e: &Expr) -> bool {
    matches!(e.last_name(), Some("MAX" | "MIN" | "PRODUCT" | "BAND" | "BOR" | "BXOR"))
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

/// Submodules and parameters of the class of a method, by attribute.
fn parts(lint: &Lint<'_>, view: &View<'_>) -> (FxHashSet<Name>, FxHashSet<Name>) {
    let (mut submodules, mut parameters) = (FxHashSet::default(), FxHashSet::default());
    let Some(class) = class_of(view).filter(|c| is_module(lint, *c)) else { return (submodules, parameters) };
    for c in lint.settings.statics.linearized(class).iter() {
        let init = lint.project.class(*c).methods.iter().find(|(n, _)| n == "__init__");
        let Some((_, func)) = init else { continue };
        let view = lint.view(FuncRef { module: c.module, func: *func });
        for step in &view.steps {
            let Stmt::SetAttr { base: Operand::Local(base), name, value } = step.stmt else { continue };
            if view.local_name(*base) != "self" {
                continue;
            }
            match view.expr(value) {
                Expr::Call { callee, .. } => {
                    let made = callee.last_name().unwrap_or("");
                    if made == "Parameter" {
                        parameters.insert(name.clone());
                    } else if made.starts_with(char::is_uppercase) || made.starts_with("build_") {
                        submodules.insert(name.clone());
                    }
                }
                Expr::Local(l)
                    if view.is_param(l) && !["fn", "func", "loss", "group"].iter().any(|w| name.contains(w)) =>
                {
                    submodules.insert(name.clone());
                }
                _ => {}
            }
        }
    }
    let is_method = |n: &Name| {
        lint.settings
            .statics
            .linearized(class)
            .iter()
            .any(|c| lint.project.class(*c).methods.iter().any(|(m, _)| m == n))
    };
    submodules.retain(|n| !is_method(n));
    (submodules, parameters)
}
