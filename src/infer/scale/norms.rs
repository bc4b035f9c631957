//! Norms of gradients: of what a rank has they are taken, over which ranks they are summed, and what is scaled with them. In: steps of a
//! program. Out: a norm of parts that nothing sums over the ranks that have the others, a sum that counts equal gradients once for each
//! rank, gradients that are clipped before they are reduced. Never: a norm that something unknown may have summed. Next: `grads.rs`.

use super::super::finding::{Finding, FindingKind};
use super::super::practice::found::{Late, Practice};
use super::super::practice::membership::Membership;
use super::super::practice::training::Training;
use super::Run;
use super::calls::Args;
use super::eval::replace;
use super::groups::{Kind, WORLD, kind};
use super::value::{Class, ClassId, Grad, Id, Module, State, Val};
use crate::infer::practice::near;
use crate::ir::{BinOp, Const, Rvalue, Stmt, StmtId};
use crate::project::FuncRef;
use crate::source::{Name, Place};
use crate::types::{Axis, AxisSet, Factor, Scale};
use std::sync::Arc;

/// What a rank has of the gradients of a wrapped module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeps {
    /// The axes over which it has a part.
    pub shards: AxisSet,
    /// In distributed tensors, which know of the other parts.
    pub distributed: bool,
    /// The mesh may be one of one dim, made of several: then it has parts over all of them.
    pub open: bool,
    pub place: Place,
}

/// What a norm counts of one class of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub class: ClassId,
    /// Of the part of a distributed tensor that this rank has.
    pub local: bool,
    /// The axes over which it is summed.
    pub over: AxisSet,
}

/// A norm, a power of one, or a factor that is computed from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Norm {
    pub id: Id,
    pub of: Vec<Share>,
    /// Something that is not followed may have changed it.
    pub lost: bool,
    /// Where it is summed over ranks, with the calls that lead there.
    pub summed: Vec<Vec<Place>>,
    /// The last step that makes it: a sum of powers, or the root.
    pub made: Place,
    /// Whether it is a root of squares, or the squares; nothing if that is not known.
    pub root: Option<bool>,
    /// Where roots were summed over ranks.
    pub roots: Option<Place>,
    /// It was multiplied with the size of a group, or divided by it.
    pub sized: bool,
    /// It was divided by something that may be the number of ranks that count the same.
    pub divided: bool,
    /// It is still one number for each entry, and no norm yet.
    pub each: bool,
}

impl Norm {
    /// Where it is summed over ranks last.
    fn sum(&self) -> Option<Place> {
        self.summed.last().and_then(|calls| calls.last()).copied()
    }

    /// Where it is taken, or else the sum.
    fn taken(&self) -> Option<Place> {
        self.summed.first().and_then(|calls| calls.first()).copied().or(self.sum())
    }
}

/// Functions that take norms.
const NORMS: &[&str] = &["norm", "vector_norm", "get_total_norm", "_foreach_norm"];
/// Functions and methods of a norm that give one again.
const SAME: &[&str] = &[
    "item",
    "float",
    "double",
    "sum",
    "sqrt",
    "pow",
    "square",
    "square_",
    "abs",
    "clamp",
    "clamp_",
    "to",
    "cuda",
    "cpu",
    "detach",
    "clone",
    "view",
    "reshape",
    "squeeze",
    "norm",
    "vector_norm",
    "stack",
    "cat",
    "tensor",
    "as_tensor",
    "maximum",
    "minimum",
    "min",
    "sqrt_",
    "pow_",
    "full_tensor",
];
/// Of these, those that make one of what was none yet.
const MAKES: &[&str] = &["sum", "sqrt", "pow", "square", "square_", "sqrt_", "pow_"];
/// Those that leave it alone.
const READS: &[&str] =
    &["print", "isinstance", "isfinite", "isnan", "isinf", "any", "log", "info", "debug", "append", "type", "str"];

/// The dim of a mesh along which parameters and reduced gradients are equal.
const REPLICAS: &str = "dp_replicate";

/// What a factor is called that is computed from a norm.
const NAME: &str = "norm";

pub fn factor() -> Scale {
    Scale::of(Factor::Named(Name::from(NAME)))
}

/// Whether a norm is never cut to a value, so that a call that cuts to it only measures.
fn is_without_bound(most: &Val) -> bool {
    match most {
        Val::Const(number) => near::is_boundless(number),
        Val::Path(path) => near::is_infinity(path),
        _ => false,
    }
}

/// Whether a name is of several parameters.
pub fn is_parameters(name: &str) -> bool {
    let word = super::value::last(name).to_lowercase();
    matches!(word.as_str(), "params" | "parameters") || word.ends_with("_params") || word.ends_with("_parameters")
}

impl State {
    /// The places of the calls around a statement, the statement last.
    pub fn chain(&self, place: Place) -> Vec<Place> {
        self.frames.iter().filter_map(|f| f.call).chain([place]).collect()
    }

    fn norm_of(&mut self, grads: &[&Grad], made: Place) -> Val {
        let share = |g: &&Grad| {
            g.of.iter()
                .map(|class| Share { class: *class, local: g.local, over: AxisSet::default() })
                .collect::<Vec<_>>()
        };
        let of = grads.iter().flat_map(share).collect();
        let id = self.fresh();
        Val::Norm(Norm {
            id,
            of,
            lost: false,
            summed: Vec::new(),
            made,
            root: None,
            roots: None,
            sized: false,
            divided: false,
            each: false,
        })
    }

    /// Norms as one.
    fn norms(&mut self, all: &[&Norm], made: Place) -> Val {
        let mut out = Norm {
            id: self.fresh(),
            of: Vec::new(),
            lost: false,
            summed: Vec::new(),
            made,
            root: None,
            roots: None,
            sized: false,
            divided: false,
            each: false,
        };
        for n in all {
            out.of.extend(n.of.iter().filter(|s| !out.of.contains(s)).cloned().collect::<Vec<_>>());
            out.summed.extend(n.summed.iter().filter(|s| !out.summed.contains(s)).cloned().collect::<Vec<_>>());
            out.lost |= n.lost;
            out.each |= n.each;
            out.sized |= n.sized;
            out.divided |= n.divided;
            out.roots = out.roots.or(n.roots);
        }
        let first = all.first().and_then(|n| n.root);
        out.root = first.filter(|_| all.iter().all(|n| n.root == first));
        Val::Norm(out)
    }

    /// What a rank has of the gradients of a class: the axes of which it has a part, those on which they are equal, whether it knows of the
    /// others, and what says so.
    fn layout(&self, class: &Class) -> Option<(AxisSet, AxisSet, bool, Option<Place>)> {
        let (factor, over) = class.total();
        if factor == Scale::Unknown {
            return None;
        }
        let keeps = class.module.and_then(|m| self.keeps_of(m));
        let (mut shards, distributed) = match &keeps {
            Some(k) => (k.shards.clone(), k.distributed),
            None => (AxisSet::default(), false),
        };
        shards = shards.iter().chain(class.shards.iter()).cloned().collect();
        let equal = over.iter().filter(|a| !shards.contains(a)).cloned().collect();
        let place = class.events.iter().chain(&class.always.2).map(|e| e.place).next();
        Some((shards, equal, distributed, keeps.map(|k| k.place).or(place)))
    }

    /// A rank has a part of some gradients from here on; the whole of them.
    pub fn shard(&mut self, g: &Grad, axes: Option<&AxisSet>) {
        for class in g.of.iter().flat_map(|c| self.leaves(*c)).collect::<Vec<_>>() {
            let Some(c) = self.classes.get_mut(class) else { continue };
            c.shards = axes.map(|axes| c.shards.iter().chain(axes.iter()).cloned().collect()).unwrap_or_default();
        }
    }

    pub fn keeps_of(&self, module: usize) -> Option<Keeps> {
        self.around(module).find_map(|m| m.keeps.clone())
    }

    /// A module and those that it is a part of, from the inside.
    pub fn around(&self, module: usize) -> impl Iterator<Item = &Module> {
        let first = self.modules.get(module);
        std::iter::successors(first, |m| self.modules.get(m.parent?))
    }
}

fn is(value: &Val, number: f64) -> bool {
    match value {
        Val::Const(Const::Int(n)) => *n as f64 == number,
        Val::Const(Const::Float(bits)) => (f64::from_bits(*bits) - number).abs() < 1e-9,
        _ => false,
    }
}

/// Whether a value is the largest norm that is wanted, by its name.
fn is_bound(value: &Val) -> bool {
    matches!(value, Val::Named(text) if near::has_any(&text.to_lowercase(), &["norm", "max", "clip", "scale"]))
}

/// Whether a call gives a root of squares, or squares. `first`: of gradients, or of nothing that is known.
fn root_after(name: &str, before: Option<bool>, first: bool, order: Option<&Val>) -> Option<bool> {
    let two = order.is_none_or(|o| is(o, 2.0));
    let open = order.is_some_and(|o| !matches!(o, Val::Const(_) | Val::Path(_)));
    match name {
        "norm" | "vector_norm" | "get_total_norm" if two && (first && before.is_none() || before == Some(true)) => {
            Some(true)
        }
        // Whatever order the caller asks for, but for 1, no sum of norms is a norm.
        "norm" | "vector_norm" | "get_total_norm" if open && first && before.is_none() => Some(true),
        "square" | "square_" if first && before.is_none() || before == Some(true) => Some(false),
        "pow" | "pow_" if order.is_some() && two && (first && before.is_none() || before == Some(true)) => Some(false),
        "sqrt" | "sqrt_" if before == Some(false) => Some(true),
        "sum" if before == Some(false) => before,
        "item" | "float" | "double" | "to" | "cuda" | "cpu" | "detach" | "clone" | "view" | "reshape" | "squeeze"
        | "stack" | "cat" | "tensor" | "as_tensor" | "full_tensor" => before,
        _ => None,
    }
}

/// The axes of which a norm of parts lacks the others.
fn missing(shards: &AxisSet, over: &AxisSet) -> Option<AxisSet> {
    let covered = |a: &Axis| over.contains(a) || over.contains(&Axis::new(WORLD));
    let known = over.iter().all(|a| kind(a) == Kind::Model && !a.is_variable());
    let lacks: AxisSet = shards.iter().filter(|a| !covered(a) && kind(a) != Kind::Model).cloned().collect();
    (known && !lacks.is_empty()).then_some(lacks)
}

/// A norm over local parts of all parameters of a model that is summed over the ranks which have parts of some of them, and others whole.
fn whole_counted(n: &Norm, share: &Share, class: &Class, state: &State) -> Option<(Place, Practice)> {
    let over: Vec<Name> = share.over.iter().filter(|a| a.name() == "tp").map(|a| Name::from(a.name())).collect();
    let module = state.modules.get(class.module?)?;
    // Whoever passes a list may have left out what is whole.
    let all = !is_parameters(&module.name) && !module.name.contains('[') && !class.is_expert();
    let (sum, taken) = (n.sum()?, n.taken()?);
    (!over.is_empty() && all && share.local)
        .then(|| (sum, Practice::Membership(Membership::WholeCounted { over, taken })))
}

/// A norm over local parts of distributed gradients that is summed over the dim along which a mesh of hybrid sharding has replicas: after the
/// backward pass gradients are equal on it. Source: torch 2.9, torch.distributed.fsdp.fully_shard: "If 2D, ... replicates on the 0th dim".
fn replicas_counted(n: &Norm, share: &Share) -> Option<(Place, Vec<Name>, Place)> {
    let over: Vec<Name> = share.over.iter().map(|a| Name::from(a.name())).filter(|a| a == REPLICAS).collect();
    let (sum, taken) = (n.sum()?, n.taken()?);
    (!over.is_empty() && share.local && !n.sized && !n.divided).then_some((sum, over, taken))
}

/// The axes on which gradients are equal and over which their norm is summed.
fn copies(equal: &AxisSet, over: &AxisSet) -> Option<AxisSet> {
    let world = Axis::new(WORLD);
    let both: AxisSet = equal.iter().filter(|a| over.contains(a)).cloned().collect();
    let data = |set: &AxisSet| !set.is_empty() && set.iter().all(|a| kind(a) == Kind::Data);
    let every = match (over.single() == Some(&world), equal.single() == Some(&world)) {
        (true, false) if data(equal) => equal.clone(),
        (false, true) if data(over) => over.clone(),
        _ => both,
    };
    (!every.is_empty()).then_some(every)
}

impl<'a> Run<'a> {
    /// A method or function of gradients or of a norm that gives a norm.
    ///
    /// `order`: what comes after it.
    pub fn norm_call(
        &mut self,
        id: StmtId,
        name: &str,
        on: &Val,
        order: Option<&Val>,
        state: &mut State,
    ) -> Option<Val> {
        let made = self.place(state, id);
        let new = match on {
            Val::Grad(g) if NORMS.contains(&name) || matches!(name, "pow" | "square" | "abs") => {
                state.norm_of(&[g], made)
            }
            Val::Norm(n) if NORMS.contains(&name) || SAME.contains(&name) => {
                let own = name.ends_with('_') || matches!(name, "item" | "detach" | "view");
                let made = if NORMS.contains(&name) || MAKES.contains(&name) { made } else { n.made };
                Val::Norm(Norm { id: if own { n.id } else { state.fresh() }, made, ..n.clone() })
            }
            Val::List(l) if NORMS.contains(&name) || SAME.contains(&name) => {
                let items = state.lists.get(*l)?.items.clone();
                self.norm_of_all(name, &items, made, state)?
            }
            Val::Tuple(items) | Val::Pack(items) => self.norm_of_all(name, items, made, state)?,
            _ => return None,
        };
        let Val::Norm(mut norm) = new else { return None };
        let grads = match on {
            Val::Grad(_) => true,
            Val::List(l) => state.lists.get(*l).is_some_and(|l| matches!(l.items.first(), Some(Val::Grad(_)))),
            _ => false,
        };
        norm.root = root_after(name, norm.root, grads, order);
        let sums = NORMS.contains(&name) || name == "sum";
        norm.each = !sums && (norm.each || grads);
        if name == "full_tensor" {
            // It is summed over the axes that the gradients know, whichever these are.
            norm.of.clear();
        }
        Some(Val::Norm(norm))
    }

    /// A method of a norm, which may raise it to a power where it stands.
    pub fn norm_method(
        &mut self,
        id: StmtId,
        name: &str,
        on: &Val,
        order: Option<&Val>,
        state: &mut State,
    ) -> Option<Val> {
        let new = self.norm_call(id, name, on, order, state)?;
        if matches!(name, "square_" | "pow_" | "sqrt_") {
            replace(state, on, &new);
        }
        Some(new)
    }

    fn norm_of_all(&self, name: &str, items: &[Val], made: Place, state: &mut State) -> Option<Val> {
        let norms: Vec<&Norm> =
            items.iter().filter_map(|v| if let Val::Norm(n) = v { Some(n) } else { None }).collect();
        if !norms.is_empty() && norms.len() == items.len() {
            return Some(state.norms(&norms, made));
        }
        let grads: Vec<&Grad> =
            items.iter().filter_map(|v| if let Val::Grad(g) = v { Some(g) } else { None }).collect();
        let all = NORMS.contains(&name) && !grads.is_empty() && grads.len() == items.len();
        all.then(|| state.norm_of(&grads, made))
    }

    /// Arithmetic with a norm; nothing if there is none.
    pub fn norm_binary(&mut self, id: StmtId, op: BinOp, a: &Val, b: &Val, state: &mut State) -> Option<Val> {
        let made = self.place(state, id);
        let adds = matches!(op, BinOp::Add | BinOp::Sub);
        match (a, b) {
            (Val::Grad(_), Val::Norm(n)) | (Val::Norm(n), Val::Grad(_)) => {
                // What is divided by its own norm has the same length, whatever factor it came with.
                state.unsettled |= op == BinOp::Div && matches!(a, Val::Grad(_)) && n.root == Some(true);
                self.norm_used(n, state);
                None
            }
            (Val::Norm(x), Val::Norm(y)) => Some(state.norms(&[x, y], made)),
            (Val::Norm(n), other) | (other, Val::Norm(n)) => {
                // What is added or multiplied with it may make up for what is wrong.
                let plain = match other {
                    Val::Const(_) | Val::Zero(_) => true,
                    Val::Named(_) => !adds,
                    // The order of the norm, or one over it.
                    Val::Num(_) => op == BinOp::Pow,
                    _ => false,
                };
                let root = match op {
                    BinOp::Add | BinOp::Sub => n.root,
                    BinOp::Pow if is(other, 2.0) => n.root.filter(|root| *root).map(|_| false),
                    BinOp::Pow if is(other, 0.5) => n.root.filter(|root| !*root).map(|_| true),
                    _ => None,
                };
                let id = state.fresh();
                // A factor that is computed from a norm is none.
                let made = if op == BinOp::Pow { made } else { n.made };
                let sized = n.sized || matches!(other, Val::Num(_)) && op != BinOp::Pow;
                let divided = n.divided || op == BinOp::Div && matches!(a, Val::Norm(_)) && !is_bound(other);
                Some(Val::Norm(Norm { id, made, root, sized, divided, lost: n.lost || !plain, ..n.clone() }))
            }
            _ => None,
        }
    }

    /// A norm is summed over a group, in place or not.
    pub fn norm_reduced(&mut self, id: StmtId, n: &Norm, axes: &AxisSet, sums: Option<bool>, state: &mut State) -> Val {
        let place = self.place(state, id);
        let mut out = Norm { id: state.fresh(), ..n.clone() };
        // A mean, a maximum: what is wrong with that is another question.
        out.lost |= sums != Some(false) || axes.iter().any(|a| a.is_variable() && out.of.is_empty());
        for share in &mut out.of {
            share.over = share.over.iter().chain(axes.iter()).cloned().collect();
        }
        out.summed.push(state.chain(place));
        if sums == Some(false) && n.root == Some(true) {
            out.roots = Some(place);
        }
        Val::Norm(out)
    }

    /// Something that is not followed takes norms.
    pub fn norms_lost(&self, name: &str, args: &Args, state: &mut State) {
        if READS.contains(&super::value::last(name)) {
            return;
        }
        for value in args.all() {
            let inner = match value {
                Val::List(l) => state.lists.get(*l).map(|l| l.items.clone()).unwrap_or_default(),
                Val::Tuple(items) | Val::Pack(items) => items.clone(),
                one => vec![one.clone()],
            };
            for norm in inner.iter().filter(|v| matches!(v, Val::Norm(_))) {
                let Val::Norm(n) = norm else { continue };
                replace(state, norm, &Val::Norm(Norm { lost: true, ..n.clone() }));
            }
        }
    }

    /// Whether the function that sums a norm, or one that it calls, asks which parameters are whole: it may leave them out by what is not followed.
    fn asks_what_is_whole(&mut self, sum: Place) -> bool {
        let at = self.project.module_of(sum.file).and_then(|module| self.project.func_around(module, sum.span));
        let Some(at) = at else { return false };
        let view = self.view(at);
        let called = view.steps.iter().filter_map(|step| match step.stmt {
            Stmt::Assign { value: Rvalue::Call { callee, .. }, .. } => near::function(&view, callee),
            _ => None,
        });
        let asks = |at: FuncRef| {
            let text = self.files[self.project.file(at.module)].slice(self.project.func(at).span).to_lowercase();
            near::has_any(&text, &["replicat", "duplicat", "is_shard", "sharded_o", "placement"])
        };
        std::iter::once(at).chain(called).any(asks)
    }

    /// Where the group of a collective is chosen, if a variable holds it.
    fn group_made(&mut self, collective: Place) -> Option<Place> {
        let module = self.project.module_of(collective.file)?;
        let view = self.view(self.project.func_around(module, collective.span)?);
        let at =
            (0..view.steps.len()).find(|s| view.place(view.steps[*s].id) == collective && view.value(*s).is_some())?;
        let group = near::local(view.collective(view.value(at)?)?.group?)?;
        match view.defs(group) {
            [one] => Some(view.place(view.steps[*one].id)),
            _ => None,
        }
    }

    /// Gradients are scaled with what was computed from a norm.
    pub fn norm_used(&mut self, n: &Norm, state: &State) {
        let by_rank = |(flag, _): (&Name, &bool)| flag.to_lowercase().contains("rank");
        if n.lost || n.each {
            return;
        }
        if let Some(at) = n.roots {
            self.noted.push((at, Practice::Training(Training::RootsSummed { used: n.made })));
            return;
        }
        for share in &n.of {
            let Some(class) = state.classes.get(share.class) else { continue };
            let open = class.module.and_then(|m| state.keeps_of(m)).is_some_and(|keeps| keeps.open);
            if class.split.is_some() || !class.facts.is_empty() || open {
                continue;
            }
            let one = state.facts.iter().any(by_rank);
            let whole = whole_counted(n, share, class, state).filter(|(sum, _)| !one && !self.asks_what_is_whole(*sum));
            if let Some(found) = whole {
                self.noted.push(found);
                return;
            }
            let layout =
                state.layout(class).and_then(|(shards, equal, known, place)| Some((shards, equal, known, place?)));
            let Some((shards, equal, distributed, wrapped)) = layout else {
                let Some((sum, over, taken)) = replicas_counted(n, share).filter(|_| !one) else { continue };
                let mistake = Membership::ReplicasCounted { over, taken, group: self.group_made(sum) };
                self.noted.push((sum, Practice::Membership(mistake)));
                return;
            };
            if let Some(_lacks) = missing(&shards, &share.over).filter(|_| share.local || !distributed) {
                let last = n.sum();
                let calls = n.summed.iter().flatten().copied().filter(|p| Some(*p) != last).collect();
                let why = Training::LocalNorm { wrapped, summed: calls };
                self.noted.push((last.unwrap_or(n.made), Practice::Training(why)));
                return;
            }
            // One rank alone may count what all have.
            let each = (share.local || !distributed) && !one && !n.divided;
            let Some(over) = copies(&equal, &share.over).filter(|_| each) else { continue };
            let Some(sum) = n.sum() else { continue };
            // One copy counts once.
            let several = |a: &&Axis| state.dims.get(*a) != Some(&Scale::one());
            let over: Vec<Name> = over.iter().filter(several).map(|a| Name::from(a.name())).collect();
            if over.is_empty() {
                continue;
            }
            self.noted.push((sum, Practice::Membership(Membership::CopiesCounted { over, equal: wrapped })));
            return;
        }
    }

    /// Gradients are clipped here.
    pub fn clipped(&mut self, id: StmtId, given: Option<&Val>, most: Option<&Val>, state: &mut State) {
        if most.is_some_and(is_without_bound) {
            return;
        }
        let place = self.place(state, id);
        let classes: Vec<ClassId> = match given {
            Some(Val::Params(m)) => state.classes_of(*m),
            Some(Val::Named(text)) if is_parameters(text) => {
                let module = state.module(text);
                state.classes_of(Some(module))
            }
            Some(Val::List(l)) => {
                let items = state.lists.get(*l).map(|l| l.items.clone()).unwrap_or_default();
                items.iter().filter_map(|v| if let Val::Param(c) = v { Some(*c) } else { None }).collect()
            }
            _ => return,
        };
        let calls: Arc<[Place]> = state.chain(place).into();
        for class in classes.into_iter().flat_map(|c| state.leaves(c)).collect::<Vec<_>>() {
            if let Some(c) = state.classes.get_mut(class) {
                c.clipped = Some(calls.clone());
            }
        }
    }

    /// Gradients that were clipped are about to be reduced.
    pub fn reduced_late(&mut self, place: Place, class: ClassId, axes: &AxisSet, state: &State) {
        let Some(class) = state.classes.get(class) else { return };
        let data = axes.iter().any(|a| kind(a) == Kind::Data && !a.is_variable());
        let (Some(clipped), true, true) = (&class.clipped, data && class.total().1.is_empty(), !state.terms.is_empty())
        else {
            return;
        };
        // Each rank clips what it gives, and adds something to that before it leaves the rank.
        let view = state.frames.last().map(|frame| frame.at).map(|at| self.view(at));
        if view.is_some_and(|view| (0..view.steps.len()).any(|step| crate::infer::practice::sets(&view, step))) {
            return;
        }
        // Where the ways to both part: what calls the two of them is right if they change places.
        let reduced = state.chain(place);
        let Some((place, before)) = reduced.into_iter().zip(clipped.iter().copied()).find(|(a, b)| a != b) else {
            return;
        };
        self.noted.push((place, Practice::LateReduction { why: Late::Clipped, gradients: before, before }));
    }

    /// What is known to be wrong whatever the loss is.
    pub fn findings_noted(&mut self) -> Vec<Finding> {
        let mut out: Vec<Finding> = Vec::new();
        let mut all = std::mem::take(&mut self.noted);
        // Of two paths to one norm the one that sums it says more.
        let of = |p: &Practice| match p {
            Practice::Training(Training::LocalNorm { wrapped, summed }) => Some((*wrapped, summed.is_empty())),
            _ => None,
        };
        let summed: Vec<Place> = all.iter().filter_map(|(_, p)| of(p)).filter(|(_, bare)| !bare).map(|w| w.0).collect();
        all.retain(|(_, p)| of(p).is_none_or(|(wrapped, bare)| !bare || !summed.contains(&wrapped)));
        for (place, found) in all {
            let finding = Finding::everywhere(place, FindingKind::Practice(found));
            if !out.iter().any(|f| f.place == finding.place) {
                out.push(finding);
            }
        }
        out
    }
}

/// What a wrapper leaves to a rank of gradients, by its name and arguments.
///
/// `flattened`: the mesh, or another one of the same dims, was made one of one dim.
pub fn keeps(
    name: &str,
    args: &Args,
    group: Option<&Val>,
    axes: &AxisSet,
    flattened: bool,
    place: Place,
) -> Option<Keeps> {
    let strategy = args.keyword("sharding_strategy");
    match name {
        "FullyShardedDataParallel" => {
            let full = match strategy {
                None => true,
                Some(Val::Path(path)) => path.ends_with("FULL_SHARD") || path.ends_with("SHARD_GRAD_OP"),
                Some(_) => false,
            };
            let whole = full && !args.open && args.keyword("device_mesh").is_none();
            // A strategy that is not known, or one for a part of the ranks, may leave any part.
            let open = strategy.is_some_and(|s| !matches!(s, Val::Path(path) if path.ends_with("NO_SHARD"))) && !whole;
            (whole || open).then(|| Keeps { shards: axes.clone(), distributed: false, open, place })
        }
        "fully_shard" => {
            let shards = match group {
                Some(Val::Mesh(dims)) => AxisSet::one(dims.last()?.clone()),
                _ => axes.clone(),
            };
            let open = flattened && matches!(group, Some(Val::Mesh(dims)) if dims.len() > 1);
            Some(Keeps { shards, distributed: true, open, place })
        }
        _ => None,
    }
}

/// What checks of single functions say of norms: the wrappers and the places.
pub fn told(practices: &[Finding]) -> Vec<Place> {
    let of = |f: &Finding| match &f.kind {
        FindingKind::Practice(Practice::Training(
            Training::LocalNorm { wrapped, .. }
            | Training::PartialNorm { wrapped, .. }
            | Training::ShardNorm { wrapped, .. },
        )) => vec![*wrapped, f.place],
        FindingKind::Practice(
            Practice::Membership(Membership::CopiesSummed { .. }) | Practice::LateReduction { .. },
        ) => vec![f.place],
        _ => Vec::new(),
    };
    practices.iter().flat_map(of).collect()
}

/// Whether that says a finding already.
pub fn is_told(finding: &Finding, told: &[Place]) -> bool {
    match &finding.kind {
        FindingKind::Practice(Practice::Training(Training::LocalNorm { wrapped, .. })) => {
            told.contains(wrapped) || told.contains(&finding.place)
        }
        FindingKind::Practice(
            Practice::Membership(
                Membership::CopiesCounted { .. } | Membership::WholeCounted { .. } | Membership::ReplicasCounted { .. },
            )
            | Practice::LateReduction { .. },
        ) => told.contains(&finding.place),
        _ => false,
    }
}
