//! One function as a list of steps with the conditions around each, and its expressions as trees. In: the intermediate representation.
//! Out: [`View`]. Never: execution, worlds or types: the checks of practice read what is written. Next: `mod.rs`.

use super::beside::{Beside, Question};
use super::expr::Expr;
use super::rank_tests::Test;
use crate::ir::{
    Arg, BinOp, Block, BuildKind, Const, Func, FuncKind, LocalId, LocalKind, Node, Operand, Rvalue, Stmt, StmtId,
};
use crate::project::{FuncRef, ModuleId, Project, Resolved};
use crate::rules::{CollectiveRule, Entry, RuleBook};
use crate::source::{Files, Idx, Name, Place, Span};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::cell::{OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// A condition that holds where a step is executed.
#[derive(Clone, Copy, Debug)]
pub struct Guard<'a> {
    pub test: &'a Operand,
    pub holds: bool,
    /// The statement that tests it.
    pub at: StmtId,
}

/// Words of tests that tell ranks, groups or modes of parallelism apart, or what is split between them.
const PARALLEL: &[&str] = &[
    "size", "rank", "world", "group", "parallel", "dist", "sync", "shard", "mesh", "%", "grad", "train", "reduce",
    "gather", "local", "replica", "expert", "num_", "len(", "split", "chunk", "mode",
];
/// Parts of names that tell what a value is.
const NAMED: &[&str] = &[
    "group", "size", "rank", "mesh", "loss", "token", "count", "mask", "param", "model", "opt", "world", "num", "pg",
    "norm", "grad",
];
/// Collectives that write to their first argument.
const IN_PLACE: &[&str] = &["all_reduce", "broadcast", "reduce", "recv", "irecv"];
/// Context managers that measure, or say how to compute.
const PLAIN: &[&str] =
    &["record_function", "autocast", "nullcontext", "no_grad", "inference_mode", "set_grad_enabled", "annotate"];
/// Axes in their names.
const AXES: &[&str] = &["tp", "dp", "cp", "ep", "sp", "pp"];

/// A statement with what surrounds it.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    pub id: StmtId,
    pub stmt: &'a Stmt,
    /// Outermost first; those after an early exit as well. Steps side by side share these lists.
    pub guards: Rc<Vec<Guard<'a>>>,
    /// Indices of the steps of the loops around it, outermost first.
    pub loops: Rc<Vec<usize>>,
    /// Context managers around it.
    pub contexts: Rc<Vec<&'a Operand>>,
    /// The handlers around it: the statement that tries, and which of its handlers.
    pub handlers: Rc<Vec<(StmtId, usize)>>,
}

/// A function, flattened.
pub struct View<'a> {
    pub project: &'a Project,
    pub rules: &'a RuleBook,
    pub files: &'a Files,
    pub at: FuncRef,
    pub func: &'a Func,
    pub steps: Vec<Step<'a>>,
    /// Steps that bind each local, in order.
    defs: Vec<SmallVec<[usize; 2]>>,
    /// Steps that are collectives, once somebody asked.
    collectives: OnceCell<Vec<(usize, CollectiveCall<'a>)>>,
    /// What calls call, with the rule for it, of those that somebody asked for.
    callees: RefCell<FxHashMap<*const Rvalue, Callee<'a>>>,
    /// The text without comments, once somebody asked.
    code: OnceCell<String>,
    /// Steps that read each local, once somebody asked.
    readers: OnceCell<Vec<SmallVec<[usize; 2]>>>,
    /// Whether a local is as good as a temporary, once somebody asked.
    short_lived: OnceCell<Vec<bool>>,
    /// How tests tell ranks apart, of the sides that somebody asked for.
    pub rank_tests: RefCell<FxHashMap<(StmtId, bool), Option<Test>>>,
    /// What the checks of a module share, if one of them looks.
    beside: Weak<Beside<'a>>,
}

/// What a call calls, and the rule for it.
type Callee<'a> = Option<(Name, Option<&'a Entry>)>;

/// The collective that a call is, with its arguments by role.
pub struct CollectiveCall<'a> {
    pub rule: Arc<CollectiveRule>,
    pub input: Option<&'a Operand>,
    pub output: Option<&'a Operand>,
    /// `None`: not given.
    pub group: Option<&'a Operand>,
    pub args: &'a [Arg],
}

impl<'a> View<'a> {
    pub fn new(project: &'a Project, rules: &'a RuleBook, files: &'a Files, at: FuncRef) -> View<'a> {
        let func = project.func(at);
        let mut view = View {
            project,
            rules,
            files,
            at,
            func,
            steps: Vec::with_capacity(func.code.count()),
            defs: vec![SmallVec::new(); func.locals().len()],
            collectives: OnceCell::new(),
            callees: RefCell::default(),
            code: OnceCell::new(),
            readers: OnceCell::new(),
            short_lived: OnceCell::new(),
            rank_tests: RefCell::default(),
            beside: Weak::new(),
        };
        let mut around = Around::default();
        view.block(func.body(), &mut around);
        for (i, step) in view.steps.iter().enumerate() {
            for local in bound(step.stmt) {
                view.defs[local.index()].push(i);
            }
        }
        view
    }

    /// The same view, for checks that share something.
    pub fn with(self, beside: &Weak<Beside<'a>>) -> View<'a> {
        View { beside: beside.clone(), ..self }
    }

    pub fn beside(&self) -> Option<Rc<Beside<'a>>> {
        self.beside.upgrade()
    }

    /// The answer to a question, asked once if checks share something.
    pub fn answer(&self, question: Question, make: impl FnOnce() -> bool) -> bool {
        match self.beside() {
            Some(beside) => beside.answer(question, make),
            None => make(),
        }
    }

    /// A view of another function of the project.
    pub fn other(&self, at: FuncRef) -> View<'a> {
        View::new(self.project, self.rules, self.files, at).with(&self.beside)
    }

    fn block(&mut self, block: &'a Block, around: &mut Around<'a>) {
        let guards = around.guards.len();
        for node in block {
            self.node(node, around);
            let guard = match &node.stmt {
                Stmt::If { test, then, orelse } => match (leaves(then), leaves(orelse)) {
                    (true, false) => Some((Guard { test, holds: false, at: node.id }, fails(then))),
                    (false, true) => Some((Guard { test, holds: true, at: node.id }, fails(orelse))),
                    _ => None,
                },
                Stmt::Assert { test } => Some((Guard { test, holds: true, at: node.id }, true)),
                _ => None,
            };
            // Where the program fails otherwise, what follows always runs; it is kept where it tells ranks or modes apart.
            if let Some((guard, fails)) = guard
                && !(fails && self.says_nothing(guard.at))
            {
                Rc::make_mut(&mut around.guards).push(guard);
            }
            // What stands behind a return is never reached.
            if ends(&node.stmt) {
                break;
            }
        }
        if around.guards.len() > guards {
            Rc::make_mut(&mut around.guards).truncate(guards);
        }
    }

    /// Whether a test has nothing to do with how work is split between ranks.
    fn says_nothing(&self, at: StmtId) -> bool {
        let test = self.text(self.part(at, 0)).to_lowercase();
        let mut parts = test.split(|c: char| !c.is_ascii_alphabetic());
        !PARALLEL.iter().any(|word| test.contains(word)) && !parts.any(|part| AXES.contains(&part))
    }

    fn node(&mut self, node: &'a Node, around: &mut Around<'a>) {
        let index = self.steps.len();
        self.steps.push(Step {
            id: node.id,
            stmt: &node.stmt,
            guards: around.guards.clone(),
            loops: around.loops.clone(),
            contexts: around.contexts.clone(),
            handlers: around.handlers.clone(),
        });
        match &node.stmt {
            Stmt::If { test, then, orelse } => {
                for (branch, holds) in [(then, true), (orelse, false)] {
                    Rc::make_mut(&mut around.guards).push(Guard { test, holds, at: node.id });
                    self.block(branch, around);
                    Rc::make_mut(&mut around.guards).pop();
                }
            }
            Stmt::For { body, orelse, .. } => {
                Rc::make_mut(&mut around.loops).push(index);
                self.block(body, around);
                Rc::make_mut(&mut around.loops).pop();
                self.block(orelse, around);
            }
            Stmt::While { head, body, orelse, .. } => {
                Rc::make_mut(&mut around.loops).push(index);
                self.block(head, around);
                self.block(body, around);
                Rc::make_mut(&mut around.loops).pop();
                self.block(orelse, around);
            }
            Stmt::With { context, body, .. } => {
                Rc::make_mut(&mut around.contexts).push(context);
                self.block(body, around);
                Rc::make_mut(&mut around.contexts).pop();
            }
            Stmt::Try { body, handlers, orelse, finally } => {
                self.block(body, around);
                for (n, handler) in handlers.iter().enumerate() {
                    Rc::make_mut(&mut around.handlers).push((node.id, n));
                    self.block(handler, around);
                    Rc::make_mut(&mut around.handlers).pop();
                }
                for b in [orelse, finally] {
                    self.block(b, around);
                }
            }
            _ => {}
        }
    }

    /// The step with the test of a guard.
    pub fn test_of(&self, guard: &Guard<'_>) -> Option<usize> {
        self.steps.iter().position(|step| step.id == guard.at)
    }

    /// Where a statement is.
    pub fn place(&self, id: StmtId) -> Place {
        Place { file: self.project.file(self.at.module), span: self.func.spans().of(id) }
    }

    /// Where the n-th operand of a statement is.
    pub fn part(&self, id: StmtId, n: usize) -> Place {
        let span = self.func.spans().part(id, n);
        Place { file: self.project.file(self.at.module), span }
    }

    pub fn spot(&self, span: Span) -> Place {
        Place { file: self.project.file(self.at.module), span }
    }

    /// The text of the file that the function stands in.
    pub fn file(&self) -> &'a str {
        self.files[self.project.file(self.at.module)].whole()
    }

    pub fn text(&self, place: Place) -> &'a str {
        self.files[place.file].slice(place.span)
    }

    /// Steps that bind a local, in order of the text.
    pub fn defs(&self, local: LocalId) -> &[usize] {
        &self.defs[local.index()]
    }

    /// The last step before another, in order of the text, that binds a local.
    pub fn last_def(&self, local: LocalId, before: usize) -> Option<usize> {
        self.defs(local).iter().copied().rfind(|def| *def < before)
    }

    pub fn is_temp(&self, local: LocalId) -> bool {
        self.func.locals()[local].kind == LocalKind::Temp
    }

    pub fn local_name(&self, local: LocalId) -> &'a Name {
        &self.func.locals()[local].name
    }

    /// The name that an expression goes by: that of a variable, or the last one of a path.
    pub fn name_of<'e>(&'e self, expr: &'e Expr) -> Option<&'e str> {
        match expr {
            Expr::Local(local) => Some(self.local_name(*local)),
            other => other.last_name(),
        }
    }

    /// The same; of what a call gives, the name of what is called: `get_tp_group()`.
    pub fn name_or_callee<'e>(&'e self, expr: &'e Expr) -> Option<&'e str> {
        match expr {
            Expr::Call { callee, .. } => callee.last_name(),
            other => self.name_of(other),
        }
    }

    pub fn is_param(&self, local: LocalId) -> bool {
        self.func.params.iter().any(|p| p.local == local)
    }
    /// Whether a variable is a parameter that nothing binds again.
    pub fn is_as_given(&self, local: LocalId) -> bool {
        self.is_param(local) && self.defs(local).is_empty()
    }

    /// The locals that a step binds.
    pub fn binds(&self, step: usize) -> Bound {
        bound(self.steps[step].stmt)
    }

    /// The value that a step gives a local, if that is one operation.
    pub fn value(&self, step: usize) -> Option<&'a Rvalue> {
        match self.steps[step].stmt {
            Stmt::Assign { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The operation that makes a temporary, or a variable that is bound once.
    pub fn source(&self, operand: &Operand) -> Option<(usize, &'a Rvalue)> {
        let Operand::Local(local) = operand else { return None };
        match self.defs(*local) {
            [one] if !self.is_param(*local) => Some((*one, self.value(*one)?)),
            _ => None,
        }
    }

    /// The expression that an operand stands for: temporaries expanded, variables kept.
    pub fn expr(&self, operand: &Operand) -> Expr {
        self.expand(operand, 0)
    }

    fn expand(&self, operand: &Operand, depth: usize) -> Expr {
        let local = match operand {
            Operand::Const(c) => return Expr::Const(c.clone()),
            Operand::Global(name) => return Expr::Path(self.global(name)),
            Operand::Local(local) => *local,
        };
        if !self.is_temp(local) && !self.is_short_lived(local) || depth > super::super::limits::MAX_EXPR_DEPTH {
            return self.only_imported(local).or_else(|| self.only_named(local)).unwrap_or(Expr::Local(local));
        }
        match self.defs(local) {
            [one] => self.bound_by(*one, local, depth),
            [] => Expr::Unknown,
            [first, others @ ..] => self.merged(*first, others, local, depth),
        }
    }

    /// Whether a variable is bound by one operation for the next statement, and goes nowhere else: as if it stood there.
    fn is_short_lived(&self, local: LocalId) -> bool {
        let all = self.short_lived.get_or_init(|| {
            let made = |step: usize| match self.steps[step].stmt {
                Stmt::Assign { dst, value } => self.is_of_tensors(value).then_some(*dst),
                _ => None,
            };
            let mut all = vec![false; self.func.locals().len()];
            for step in 0..self.steps.len() {
                let Some(dst) = made(step) else { continue };
                let plain = self.func.locals()[dst].kind == LocalKind::Plain;
                if plain && !self.is_param(dst) && self.defs(dst).len() == 1 && self.is_for_next(dst, step) {
                    all[dst.index()] = true;
                }
            }
            all
        });
        all[local.index()]
    }

    /// Whether an operation is arithmetic or a method of tensors: what is made otherwise is known by its name.
    fn is_of_tensors(&self, value: &Rvalue) -> bool {
        match value {
            Rvalue::Binary { op, .. } => matches!(op, BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div),
            Rvalue::CallMethod { name, .. } => name == "parameters" || self.rules.tensor_method(name).is_some(),
            _ => false,
        }
    }

    /// Whether the one reader of what a step makes belongs to the statement behind it.
    fn is_for_next(&self, made: LocalId, step: usize) -> bool {
        let &[reader] = self.readers(made) else { return false };
        let (a, b) = (&self.steps[step], &self.steps[reader.max(step)]);
        let temp = |s: usize| matches!(self.steps[s].stmt, Stmt::Assign { dst, .. } if self.is_temp(*dst));
        reader > step
            && !NAMED.iter().any(|word| self.local_name(made).to_lowercase().contains(word))
            && Rc::ptr_eq(&a.guards, &b.guards)
            && Rc::ptr_eq(&a.loops, &b.loops)
            && Rc::ptr_eq(&a.contexts, &b.contexts)
            && (step + 1..reader).all(temp)
            && !self.is_written(made, reader)
    }

    /// Whether a step is a collective that writes to a local: whoever names it may want to see what comes out. By its name alone: to resolve
    /// what is called asks for expressions.
    fn is_written(&self, local: LocalId, step: usize) -> bool {
        let (name, args) = match self.value(step) {
            Some(Rvalue::CallMethod { name, args, .. }) => (name.clone(), args),
            Some(Rvalue::Call { callee: Operand::Global(name), args }) => (name.clone(), args),
            Some(Rvalue::Call { callee: Operand::Local(l), args }) => (self.local_name(*l).clone(), args),
            _ => return false,
        };
        IN_PLACE.contains(&name.as_str()) && args.first().is_some_and(|a| a.value == Operand::Local(local))
    }

    /// A temporary bound more than once: `a and b and c`, `a or b`, where each but the first is bound if the one before it says so, and
    /// `a if c else b`.
    fn merged(&self, first: usize, others: &[usize], local: LocalId, depth: usize) -> Expr {
        let goes_on = |def: &usize| match self.steps[*def].guards.last() {
            Some(guard) if matches!(guard.test, Operand::Local(l) if *l == local) => Some(guard.holds),
            _ => None,
        };
        let told: Option<Vec<bool>> = others.iter().map(goes_on).collect();
        if let Some([and, rest @ ..]) = told.as_deref()
            && rest.iter().all(|holds| holds == and)
        {
            let of = std::iter::once(&first).chain(others).map(|def| self.bound_by(*def, local, depth + 1));
            return Expr::Bool { and: *and, of: of.collect() };
        }
        let [second] = others else { return Expr::Unknown };
        match (self.steps[first].guards.last(), self.steps[*second].guards.last()) {
            (Some(x), Some(y)) if x.at == y.at && x.holds && !y.holds => {
                let of = |def: usize| Box::new(self.bound_by(def, local, depth + 1));
                Expr::Choice(Box::new(self.expand(x.test, depth + 1)), of(first), of(*second))
            }
            _ => Expr::Unknown,
        }
    }

    /// What a variable stands for that imports alone bind, all to the same: `import torch` and `import torch.nn`.
    fn only_imported(&self, local: LocalId) -> Option<Expr> {
        let (first, others) = self.defs(local).split_first()?;
        let imports = |def: &usize| matches!(self.steps[*def].stmt, Stmt::Import { .. });
        if self.is_param(local) || !imports(first) || !others.iter().all(imports) {
            return None;
        }
        let path = self.imported(*first);
        others.iter().all(|other| self.imported(*other) == path).then_some(path)
    }

    /// The operator that a reduction is given.
    pub fn operator(&self, call: &CollectiveCall<'a>) -> Option<&'a Operand> {
        let at = call.rule.reduce_op?;
        self.argument(call.args, at, &call.rule.args.params.get(at)?.name)
    }

    /// What a variable is that is a name of `torch.distributed`, or of something in it, and nothing else.
    fn only_named(&self, local: LocalId) -> Option<Expr> {
        let [one] = self.defs(local) else { return None };
        let path = match self.value(*one).filter(|_| !self.is_param(local))? {
            Rvalue::Use(Operand::Global(name)) => self.global(name),
            Rvalue::Attr { base: Operand::Global(base), name } => Name::from(format!("{}.{name}", self.global(base))),
            _ => return None,
        };
        path.starts_with("torch.distributed").then_some(Expr::Path(path))
    }

    fn imported(&self, step: usize) -> Expr {
        let Stmt::Import { path, member, level, .. } = self.steps[step].stmt else { return Expr::Unknown };
        let base = self.project.absolute(self.at.module, path, *level);
        let full = member.as_ref().map_or(base.clone(), |m| format!("{base}.{m}"));
        Expr::Path(self.resolved(&full))
    }

    /// What a step binds a local to, where that is known.
    pub fn bound(&self, step: usize, local: LocalId) -> Expr {
        self.bound_by(step, local, 0)
    }

    /// What a step binds a local to.
    fn bound_by(&self, step: usize, local: LocalId, depth: usize) -> Expr {
        let deeper = |o: &Operand| self.expand(o, depth + 1);
        match self.steps[step].stmt {
            Stmt::Assign { value, .. } => self.operation(value, step, depth),
            Stmt::Unpack { value, before, star: None, after } if after.is_empty() => {
                let at = before.iter().position(|l| *l == local);
                match (deeper(value), at) {
                    (Expr::Build(items), Some(at)) if items.len() == before.len() => items[at].clone(),
                    (whole, Some(at)) => Expr::Item(Box::new(whole), Box::new(Expr::Const(Const::Int(at as i64)))),
                    _ => Expr::Unknown,
                }
            }
            Stmt::For { iter, .. } => Expr::Element(Box::new(deeper(iter))),
            Stmt::Import { .. } => self.imported(step),
            _ => Expr::Unknown,
        }
    }

    fn operation(&self, value: &Rvalue, step: usize, depth: usize) -> Expr {
        let deeper = |o: &Operand| self.expand(o, depth + 1);
        let args = |args: &[Arg]| args.iter().map(|a| (a.kind.clone(), deeper(&a.value))).collect::<Vec<_>>();
        match value {
            Rvalue::Use(o) => deeper(o),
            Rvalue::Attr { base, name } => self.member(deeper(base), name),
            Rvalue::Item { base, index } => Expr::Item(Box::new(deeper(base)), Box::new(deeper(index))),
            Rvalue::Call { callee, args: given } => {
                Expr::Call { callee: Box::new(deeper(callee)), args: args(given), step }
            }
            Rvalue::CallMethod { base, name, args: given } => {
                Expr::Call { callee: Box::new(self.member(deeper(base), name)), args: args(given), step }
            }
            Rvalue::Unary { op, operand } => Expr::Unary(*op, Box::new(deeper(operand))),
            Rvalue::Binary { op, left, right } | Rvalue::InPlace { op, left, right } => {
                Expr::Binary(*op, Box::new(deeper(left)), Box::new(deeper(right)))
            }
            Rvalue::Compare { op, left, right } => Expr::Compare(*op, Box::new(deeper(left)), Box::new(deeper(right))),
            Rvalue::Bool { and, operands } => Expr::Bool { and: *and, of: operands.iter().map(deeper).collect() },
            Rvalue::Build { kind: BuildKind::Tuple | BuildKind::List | BuildKind::Set, items } => {
                let all: Option<Vec<Expr>> = items
                    .iter()
                    .map(|i| match i {
                        crate::ir::Item::One(o) => Some(deeper(o)),
                        crate::ir::Item::Star(_) => None,
                    })
                    .collect();
                all.map_or(Expr::Unknown, Expr::Build)
            }
            Rvalue::Await(o) => deeper(o),
            Rvalue::Build { .. } | Rvalue::Closure { .. } | Rvalue::Yield(_) | Rvalue::Opaque => Expr::Unknown,
        }
    }

    /// A member of a path is a path.
    fn member(&self, base: Expr, name: &Name) -> Expr {
        match base {
            Expr::Path(path) => Expr::Path(self.resolved(&format!("{path}.{name}"))),
            base => Expr::Attr(Box::new(base), name.clone()),
        }
    }

    /// The qualified path of a name that is not local.
    pub fn global(&self, name: &Name) -> Name {
        match self.project.member(self.at.module, name) {
            Some(resolved) => super::expr::path_of(self.project, &resolved),
            None => name.clone(),
        }
    }

    fn resolved(&self, path: &str) -> Name {
        super::expr::path_of(self.project, &self.project.path(path))
    }

    /// The expression of a variable that is bound once, seen through; other operands as [`View::expr`].
    pub fn through(&self, operand: &Operand) -> Expr {
        match self.expr(operand) {
            Expr::Local(local) => self.through_local(local, 0),
            other => other,
        }
    }

    fn through_local(&self, local: LocalId, depth: usize) -> Expr {
        match self.defs(local) {
            [one] if !self.is_param(local) && depth < super::super::limits::MAX_EXPR_DEPTH => {
                match self.bound_by(*one, local, 0) {
                    Expr::Local(next) if next != local => self.through_local(next, depth + 1),
                    Expr::Unknown => Expr::Local(local),
                    other => other,
                }
            }
            _ => Expr::Local(local),
        }
    }

    /// The qualified path that a call calls: of a function of a module, or `.name` of a method.
    pub fn callee(&self, value: &'a Rvalue) -> Option<Name> {
        self.ruled(value).map(|(path, _)| path)
    }

    /// The same, with the rule for it.
    pub fn ruled(&self, value: &'a Rvalue) -> Callee<'a> {
        if !matches!(value, Rvalue::Call { .. } | Rvalue::CallMethod { .. }) {
            return None;
        }
        let key = std::ptr::from_ref(value);
        if let Some(known) = self.callees.borrow().get(&key) {
            return known.clone();
        }
        let callee = self.called(value).map(|path| {
            let rule = self.rules.get(&path);
            (path, rule)
        });
        self.callees.borrow_mut().insert(key, callee.clone());
        callee
    }

    /// Whether what a call calls may communicate, by the last part of its name.
    pub fn may_communicate(&self, value: &Rvalue) -> bool {
        may_communicate(self.project, self.rules, self.at.module, value)
    }

    fn called(&self, value: &Rvalue) -> Option<Name> {
        match value {
            Rvalue::Call { callee, .. } => match self.through(callee) {
                Expr::Path(path) => Some(path),
                _ => None,
            },
            Rvalue::CallMethod { base, name, .. } => Some(match self.through(base) {
                Expr::Path(path) => self.resolved(&format!("{path}.{name}")),
                _ => Name::from(format!(".{name}")),
            }),
            _ => None,
        }
    }

    /// The text of the function without comments, in lowercase; of a module, its own statements and no function.
    pub fn code(&self) -> &str {
        self.code.get_or_init(|| match self.func.kind {
            FuncKind::Module => {
                let parts = super::near::own_parts(&self.project.modules[self.at.module].ir.funcs);
                parts.into_iter().map(|part| super::near::code(self, part)).collect::<Vec<_>>().join("\n")
            }
            FuncKind::ClassBody | FuncKind::Function | FuncKind::Lambda => super::near::code(self, self.func.span),
        })
    }

    /// The collective that an operation is.
    pub fn collective(&self, value: &'a Rvalue) -> Option<CollectiveCall<'a>> {
        if !self.may_communicate(value) {
            return None;
        }
        let (_, Some(Entry::Collective(rule))) = self.ruled(value)? else { return None };
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
        if args.iter().any(|a| matches!(a.kind, crate::ir::ArgKind::Star | crate::ir::ArgKind::DoubleStar)) {
            return None;
        }
        let keywords: Vec<Option<&Name>> = args
            .iter()
            .map(|a| match &a.kind {
                crate::ir::ArgKind::Keyword(name) => Some(name),
                _ => None,
            })
            .collect();
        let bound = rule.args.bind(&keywords);
        let given = |slot: Option<usize>| slot.and_then(|s| bound.first(s)).map(|i| &args[i].value);
        Some(CollectiveCall {
            input: given(Some(rule.input)),
            output: given(rule.output),
            group: given(rule.group),
            args,
            rule: rule.clone(),
        })
    }

    /// The steps that are collectives, in order.
    pub fn collectives(&self) -> &[(usize, CollectiveCall<'a>)] {
        let call = |step| Some((step, self.collective(self.value(step)?)?));
        self.collectives.get_or_init(|| (0..self.steps.len()).filter_map(call).collect())
    }

    /// The argument of a call by keyword or position.
    pub fn argument(&self, args: &'a [Arg], position: usize, keyword: &str) -> Option<&'a Operand> {
        let named = args.iter().find(|a| matches!(&a.kind, crate::ir::ArgKind::Keyword(k) if k == keyword));
        let positional = || args.get(position).filter(|a| a.kind == crate::ir::ArgKind::Positional);
        named.or_else(positional).map(|a| &a.value)
    }

    /// Every operand that a step reads.
    pub fn reads(&self, step: usize) -> SmallVec<[&'a Operand; 4]> {
        self.steps[step].stmt.operands()
    }

    /// The steps that read a local, in order; one that reads it twice is there twice.
    pub fn readers(&self, local: LocalId) -> &[usize] {
        let all = self.readers.get_or_init(|| {
            let mut all = vec![SmallVec::new(); self.func.locals().len()];
            for step in 0..self.steps.len() {
                for operand in self.reads(step) {
                    if let Operand::Local(local) = operand {
                        all[local.index()].push(step);
                    }
                }
            }
            all
        });
        &all[local.index()]
    }

    /// Whether any step reads a local.
    pub fn is_read(&self, local: LocalId) -> bool {
        self.func.locals()[local].kind == LocalKind::Cell || !self.readers(local).is_empty()
    }

    /// Whether no context around a step may wait for what is under way, or send it elsewhere.
    pub fn in_plain_contexts(&self, step: usize) -> bool {
        self.steps[step].contexts.iter().all(|context| match self.expr(context) {
            Expr::Call { callee, .. } => callee.last_name().is_some_and(|name| PLAIN.contains(&name)),
            _ => false,
        })
    }

    /// Whether a step may run without gradients: inside `no_grad` or `inference_mode`, or where a flag decides.
    pub fn without_gradient(&self, step: usize) -> bool {
        self.steps[step].contexts.iter().any(|c| match self.expr(c) {
            Expr::Call { callee, args, .. } => match callee.path() {
                Some(p) if p.ends_with(".set_grad_enabled") => {
                    args.first().is_none_or(|(_, on)| *on != Expr::Const(Const::Bool(true)))
                }
                Some(p) => p.ends_with("no_grad") || p.ends_with("inference_mode"),
                None => false,
            },
            other => matches!(other.path(), Some(p) if p.ends_with("no_grad") || p.ends_with("inference_mode")),
        })
    }
}

/// Whether what a call in a module calls may communicate, by the last part of its name.
pub fn may_communicate(project: &Project, rules: &RuleBook, module: ModuleId, value: &Rvalue) -> bool {
    match value {
        // A module of the project may give a name to what is called otherwise elsewhere.
        Rvalue::CallMethod { base: Operand::Global(base), name, .. } => {
            rules.may_communicate(name) || member_may_communicate(project, rules, (module, base), name)
        }
        Rvalue::CallMethod { name, .. } => rules.may_communicate(name),
        Rvalue::Call { callee: Operand::Global(name), .. } => {
            resolved_may_communicate(project, rules, name, project.member(module, name).as_ref())
        }
        Rvalue::Call { callee: Operand::Local(_) | Operand::Const(_), .. } => true,
        _ => false,
    }
}

/// Whether a member of what a name of a module denotes is a member of another module that may communicate.
pub fn member_may_communicate(
    project: &Project,
    rules: &RuleBook,
    (module, base): (ModuleId, &Name),
    name: &Name,
) -> bool {
    match project.member(module, base) {
        Some(Resolved::Module(of)) => project
            .member(of, name)
            .is_some_and(|denoted| resolved_may_communicate(project, rules, name, Some(&denoted))),
        Some(Resolved::Package(_)) => true,
        _ => false,
    }
}

/// Whether what a name denotes may communicate, by the last part of its own name.
pub fn resolved_may_communicate(project: &Project, rules: &RuleBook, name: &Name, denoted: Option<&Resolved>) -> bool {
    let ends = |path: &str| rules.may_communicate(path.rsplit('.').next().unwrap_or(path));
    match denoted {
        Some(Resolved::External(path) | Resolved::Package(path)) => ends(path),
        Some(Resolved::Func(func)) => rules.may_communicate(&project.func(*func).name),
        Some(Resolved::Class(class)) => rules.may_communicate(&project.class(*class).name),
        Some(Resolved::Module(module)) => ends(project.name(*module)),
        Some(Resolved::Value(_, name)) => rules.may_communicate(name),
        None => rules.may_communicate(name),
    }
}

#[derive(Default)]
struct Around<'a> {
    guards: Rc<Vec<Guard<'a>>>,
    loops: Rc<Vec<usize>>,
    contexts: Rc<Vec<&'a Operand>>,
    handlers: Rc<Vec<(StmtId, usize)>>,
}

/// Whether a block always leaves the block around it.
fn leaves(block: &Block) -> bool {
    block.last().is_some_and(|n| matches!(n.stmt, Stmt::Return { .. } | Stmt::Raise | Stmt::Break | Stmt::Continue))
}

/// Whether a block that leaves does so by an error.
fn fails(block: &Block) -> bool {
    block.last().is_some_and(|n| matches!(n.stmt, Stmt::Raise))
}

/// Whether nothing after a statement is reached.
fn ends(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Return { .. } | Stmt::Raise | Stmt::Break | Stmt::Continue => true,
        Stmt::If { then, orelse, .. } => leaves(then) && leaves(orelse),
        _ => false,
    }
}

/// The locals of one statement.
type Bound = SmallVec<[LocalId; 2]>;

/// The locals that a statement binds.
fn bound(stmt: &Stmt) -> Bound {
    match stmt {
        Stmt::Assign { dst, .. }
        | Stmt::For { dst, .. }
        | Stmt::Def { dst, .. }
        | Stmt::Class { dst, .. }
        | Stmt::Import { dst, .. } => smallvec![*dst],
        Stmt::Unpack { before, star, after, .. } => before.iter().chain(star).chain(after).copied().collect(),
        Stmt::With { bind, .. } => bind.iter().copied().collect(),
        _ => SmallVec::new(),
    }
}
