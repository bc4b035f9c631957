//! Whole layers next to layers that a rule types. In: a class, or a function that sums gradients. Out: a linear layer behind one that leaves
//! each rank a part of the sequence, which nothing marks; a sum over the ranks for a linear layer whose output goes into one that sums the
//! gradient of its input already; what a layer has summed, added to what is summed afterwards. Never: where neither a comment says that the sequence is split, or may be, nor a sibling
//! class marks such a layer. Source: mcore-bridge, pull request 173; AReno, pull request 496; `rules/models/megatron_layers.toml` for the layers. Next: `sibling_marks.rs`, `doubled.rs`.

use super::class_marks::{freezes, text_of};
use super::expr::{Expr, path_of_hint};
use super::found::{Practice, Scales};
use super::near::{self, Note};
use super::unshared::Unshared;
use super::view::View;
use super::{Class, Found, Lint, sibling_marks};
use crate::ir::{ArgKind, BinOp, ClassId, Const, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::rules::collective::Transition;
use crate::rules::{Form, LayerRule};
use crate::source::{Name, Place};
use crate::types::Spmd;
use std::rc::Rc;
use std::sync::Arc;

/// What comments say of a value of which each rank has a part of the sequence.
const SPLIT: &[&str] = &["s/tp", "sequence shard", "sequence parallel", "sequence_parallel", "reduce-scatter"];

/// A layer that a method calls on something: the attribute, the step and the argument.
pub type Used<'a> = (&'a Name, usize, &'a Operand);

/// `mid, _ = self.row(x)` and `self.linear(mid)`, in a class that marks nothing
pub fn unmarked<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let file = lint.files[lint.project.file(class.at.module)].whole();
    let text = text_of(lint, class.at);
    if !text.contains("Linear(") || !text.contains("Parallel") || marks(text) || text.contains("_hook(") {
        return;
    }
    // What trains nobody sums, and what the file names elsewhere it may mark or sum there. Of whole sequences each rank has all.
    let refused =
        |line: &str| ["sequence_parallel", "world_size", "tensor_model_parallel_size"].iter().any(|w| line.contains(w));
    if text.contains("no_grad(") || text.contains("self.requires_grad_(False") || near::refusals(file).any(refused) {
        return;
    }
    let bare = std::cell::LazyCell::new(|| (near::bare(file), near::bare(text)));
    let elsewhere = |name: &str| {
        let (file, text) = &*bare;
        let name = name.to_lowercase();
        file.matches(&name).count() > text.matches(&name).count()
    };
    let Some(init) = class.init(lint) else { return };
    let Some(forward) = lint.project.own_method(class.at, "forward") else { return };
    let view = near::shared(init, forward);
    let all = used(&view);
    let said = said(init, class.at, SPLIT);
    for (row, from, _) in &all {
        let rows: Vec<(Way<'_>, Arc<LayerRule>)> = ways(&view, class.at.class, row)
            .into_iter()
            .filter_map(|way| layer_of(&way.method, &way.made).filter(|rule| scatters(rule)).map(|rule| (way, rule)))
            .collect();
        for (whole, at, given) in all.iter().filter(|(_, at, _)| at > from && !rows.is_empty()) {
            if !comes_of(&view, given, *from, *at) {
                continue;
            }
            let together = ways(&view, class.at.class, whole).into_iter().find_map(|way| {
                let (_, rule) = rows.iter().find(|(row, _)| way.is_beside(row))?;
                makes_whole(&way.method, &way.made, true)
                    .then(|| (way.place(), (way.inside(), way.told()), rule.clone()))
            });
            let Some((made, (inside, told_other), rule)) = together else { continue };
            let frozen = || freezes(file) && !sibling_marks::freezes_others(lint, class.at, whole);
            let told = said.filter(|_| !elsewhere(whole) && !frozen()).map(|said| (said, None));
            let Some((said, sibling)) = told.or_else(|| sibling_marks::alike(lint, class, init, whole, &rule)) else {
                continue;
            };
            let mistake = Scales::UnmarkedBehind {
                layer: (*whole).clone(),
                before: (*row).clone(),
                axes: rule.default_group.clone(),
                used: view.place(view.steps[*at].id),
                said,
                sibling,
                inside,
                told_other,
            };
            out.push((made, Practice::Scales(mistake)));
            return;
        }
    }
}

/// Whether a class sets marks on parameters, or hands them to something that may. What it keeps for itself is none.
fn marks(text: &str) -> bool {
    let text = text.replace("self.sequence_parallel =", "");
    ["setattr(", ".sequence_parallel =", "mark_", "_mark", "allreduce ="].iter().any(|word| text.contains(word))
}

/// The calls of a method of what its object keeps, with one argument.
pub fn used<'a>(view: &View<'a>) -> Vec<Used<'a>> {
    let of = |step: usize| match view.value(step)? {
        Rvalue::CallMethod { base, name, args } if near::is_self(view, base) => match &**args {
            [one] => Some((name, step, &one.value)),
            _ => None,
        },
        _ => None,
    };
    (0..view.steps.len()).filter_map(of).collect()
}

/// One of the ways in which an attribute is set: what it is set to, and the step of the method that makes that.
struct Way<'a> {
    method: Rc<View<'a>>,
    step: usize,
    made: Expr,
}

impl Way<'_> {
    /// Whether two attributes may be set so in one object.
    fn is_beside(&self, other: &Way<'_>) -> bool {
        self.method.at != other.method.at
            || !super::handles::excludes(&self.method.steps[self.step], &self.method.steps[other.step])
    }

    /// What is made.
    fn place(&self) -> Place {
        let id = self.method.steps[self.step].id;
        match self.method.steps[self.step].stmt {
            Stmt::SetAttr { .. } => self.method.part(id, 1),
            _ => self.method.place(id),
        }
    }

    /// Where something else is said of its parameters: `for p in layer.parameters(): p.is_split = False`.
    fn told(&self) -> Option<Place> {
        let Stmt::Assign { dst, .. } = self.method.steps[self.step].stmt else { return None };
        let is_made = |e: &Expr| match e {
            Expr::Local(l) if l == dst => true,
            Expr::Local(l) => self.method.defs(*l).iter().any(|def| self.method.bound(*def, *l) == Expr::Local(*dst)),
            _ => false,
        };
        let of_parameters = |base: &Operand| match self.method.through(base) {
            Expr::Element(all) => match *all {
                Expr::Call { callee, .. } => {
                    matches!(&*callee, Expr::Attr(of, name) if name == "parameters" && is_made(of))
                }
                _ => false,
            },
            _ => false,
        };
        (self.step..self.method.steps.len()).find_map(|at| match self.method.steps[at].stmt {
            Stmt::SetAttr { base, .. } if of_parameters(base) => Some(self.method.place(self.method.steps[at].id)),
            _ => None,
        })
    }

    /// Where a function of the project makes it that the class calls.
    fn inside(&self) -> Option<Place> {
        let Expr::Call { callee, .. } = &self.made else { return None };
        let helper = near::shared(&self.method, helper(&self.method, callee)?);
        let made = helper.steps.iter().position(|step| matches!(step.stmt, Stmt::Return { .. }))?;
        Some(helper.place(helper.steps[made].id))
    }
}

/// The ways in which a class sets an attribute, through variables that several branches bind: `self.a, self.b = a, b`.
fn ways<'a>(view: &View<'a>, class: ClassId, attr: &str) -> Vec<Way<'a>> {
    let mut out = Vec::new();
    for (method, step, value) in near::assigned(view, class, attr) {
        let set = match method.expr(value) {
            item @ Expr::Item(..) => item_set(item),
            set => Some(set),
        };
        match set {
            Some(Expr::Local(local)) if !method.is_param(local) => {
                let bound = method.defs(local).iter().map(|def| (*def, method.bound(*def, local)));
                out.extend(bound.map(|(step, made)| Way { method: method.clone(), step, made }));
            }
            Some(made) => out.push(Way { method, step, made }),
            None => {}
        }
    }
    out
}

/// What stands at a place of a tuple that is written there.
fn item_set(item: Expr) -> Option<Expr> {
    let Expr::Item(of, at) = item else { return None };
    match (*of, *at) {
        (Expr::Build(items), Expr::Const(Const::Int(n))) => items.get(usize::try_from(n).ok()?).cloned(),
        _ => None,
    }
}

/// The rule of the layer that an expression makes, or that a parameter is by its annotation.
fn layer_of(method: &View<'_>, made: &Expr) -> Option<Arc<LayerRule>> {
    let path = match made {
        Expr::Call { callee, .. } => near::path(method, callee)?,
        Expr::Local(local) => hinted(method, *local)?,
        _ => return None,
    };
    method.rules.layer(&path).cloned()
}

/// The rule of the layer that an attribute is: by what the constructor makes, or by the annotation of what it is given.
pub fn kept_layer(view: &View<'_>, class: ClassId, attr: &str) -> Option<Arc<LayerRule>> {
    let set = near::assigned(view, class, attr);
    let [(method, _, value)] = set.as_slice() else { return None };
    match method.expr(value) {
        // `self.a, self.b = a, b`
        item @ Expr::Item(..) => match item_set(item)? {
            given @ Expr::Local(_) => layer_of(method, &given),
            _ => None,
        },
        made => layer_of(method, &made),
    }
}

/// The path of the class that a parameter is annotated with.
fn hinted(view: &View<'_>, local: LocalId) -> Option<Name> {
    let param = view.func.params.iter().find(|p| p.local == local)?;
    path_of_hint(view.project, view.at.module, param.hint.as_deref()?)
}

fn cases(rule: &LayerRule) -> impl Iterator<Item = (bool, &Transition)> {
    rule.cases.iter().flat_map(|(cond, r)| r.transitions.iter().map(move |(_, t)| (cond.is_none(), t)))
}

/// Whether a layer gives all ranks the same, or in some configuration each a part of the sequence.
fn scatters(rule: &LayerRule) -> bool {
    let invariant = |t: &Transition| t.result.set.contains(Spmd::Invariant);
    cases(rule).any(|(_, t)| t.result.dim() == Some(0)) && cases(rule).any(|(other, t)| other && invariant(t))
}

/// Whether a layer takes what all ranks have alike and sums its gradient, or in some configuration parts of the sequence.
pub fn sums_gradient(rule: &LayerRule) -> bool {
    let invariant = |t: &Transition| t.source.set.contains(Spmd::Invariant) && !t.result.set.contains(Spmd::Invariant);
    cases(rule).any(|(_, t)| t.source.dim() == Some(0)) && cases(rule).any(|(other, t)| other && invariant(t))
}

/// Where the constructor makes a linear layer of torch, or one that is told to be whole on every rank.
pub fn whole_linear(view: &View<'_>, class: ClassId, attr: &str) -> Option<Place> {
    let set = near::assigned(view, class, attr);
    let [(method, made, value)] = set.as_slice() else { return None };
    makes_whole(method, &method.expr(value), true).then(|| method.place(method.steps[*made].id))
}

/// Whether an expression makes such a layer, by itself or (`follows`) by a function of the project that does nothing to it.
fn makes_whole(view: &View<'_>, made: &Expr, follows: bool) -> bool {
    let Expr::Call { callee, args, .. } = made else { return false };
    let divided = args.iter().any(|(_, a)| {
        a.any(&mut |e| {
            matches!(e, Expr::Binary(..))
                || e.last_name().is_some_and(|n| n.contains("local") || n.contains("partition"))
        })
    });
    let told_whole = |(kind, a): &(ArgKind, Expr)| {
        matches!(kind, ArgKind::Keyword(k) if k == "parallel_mode") && *a == Expr::Const(Const::None)
    };
    let parallel = |(kind, _): &(ArgKind, Expr)| matches!(kind, ArgKind::Keyword(k) if k.contains("parallel") || k.contains("tp_"));
    // Another library's layer of the name is whole unless it is told otherwise.
    let outside = |path: &Name| {
        let of_project = matches!(view.project.path(path), Resolved::Class(_) | Resolved::Func(_));
        path.ends_with(".Linear") && !of_project && !args.iter().any(parallel)
    };
    let whole = |path: &Name| outside(path) || path.ends_with("Linear") && args.iter().any(told_whole);
    if callee.path().is_some_and(whole) {
        return !divided;
    }
    let helper = helper(view, callee).filter(|_| follows && !divided);
    helper.is_some_and(|at| gives_whole(&near::shared(view, at)))
}

/// The function of the project, or the method of the own class, that a call runs.
fn helper(view: &View<'_>, callee: &Expr) -> Option<FuncRef> {
    match callee {
        Expr::Path(path) => match view.project.path(path) {
            Resolved::Func(at) => Some(at),
            _ => None,
        },
        own => near::own_attribute(view, own).and_then(|name| near::own_method(view, name)),
    }
}

/// Whether all that a function gives back is such a layer, as it is made, and the function marks nothing.
fn gives_whole(helper: &View<'_>) -> bool {
    let text = helper.text(helper.spot(helper.func.span));
    let given: Vec<Expr> = helper
        .steps
        .iter()
        .filter_map(|step| match step.stmt {
            Stmt::Return { value } => Some(helper.through(value)),
            _ => None,
        })
        .collect();
    let plain = !marks(text) && !text.contains("_hook(") && !freezes(text) && !text.contains("parallel_state");
    plain && !given.is_empty() && given.iter().all(|made| makes_whole(helper, made, false))
}

/// Whether an argument is what a step gave, as it is or as the first of a tuple, or made from that row by row.
fn comes_of(view: &View<'_>, given: &Operand, from: usize, before: usize) -> bool {
    is_of(view, &view.expr(given), from, before, 6)
}

/// Modules that leave every row as long as it is, and where it is.
const ROWWISE: &[&str] = &["torch.nn.Dropout", "torch.nn.Identity", "torch.nn.GELU", "torch.nn.SiLU", "torch.nn.ReLU"];

fn is_of(view: &View<'_>, e: &Expr, from: usize, before: usize, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let is_call = |e: &Expr| matches!(e, Expr::Call { step, .. } if *step == from);
    match e {
        Expr::Choice(_, a, b) => [a, b].iter().all(|way| is_of(view, way, from, before, depth)),
        Expr::Item(base, at) => {
            matches!(**at, Expr::Const(Const::Int(0))) && (is_call(base) || is_of(view, base, from, before, depth))
        }
        Expr::Local(local) => {
            let last = view.last_def(*local, before);
            last.is_some_and(|def| is_of(view, &view.bound(def, *local), from, def, depth))
        }
        Expr::Call { callee, args, .. } => {
            let rowwise = || match &**callee {
                Expr::Attr(base, name) if name == "to" || name == "contiguous" => {
                    is_of(view, base, from, before, depth)
                }
                own => match (near::own_attribute(view, own), args.as_slice()) {
                    (Some(name), [(_, one)]) => keeps_rows(view, name) && is_of(view, one, from, before, depth),
                    _ => false,
                },
            };
            is_call(e) || rowwise()
        }
        _ => false,
    }
}

/// Whether an attribute is a module, wherever it is made, that takes each row by itself.
fn keeps_rows(view: &View<'_>, attr: &str) -> bool {
    let Some(class) = near::class_of(view) else { return false };
    let rowwise = |e: &Expr| match e {
        Expr::Call { callee, .. } => callee.path().is_some_and(|path| ROWWISE.contains(&path.as_str())),
        _ => false,
    };
    let set = near::assigned(view, class, attr);
    !set.is_empty()
        && set.iter().all(|(method, _, value)| match method.expr(value) {
            Expr::Choice(_, a, b) => rowwise(&a) && rowwise(&b),
            made => rowwise(&made),
        })
}

/// The comment in a class that says one of these.
fn said(view: &View<'_>, class: ClassRef, words: &[&str]) -> Option<Place> {
    let span = view.project.class(class).span;
    let speaks = |note: &Note| near::has_any(&note.text, words);
    near::comments(view, span).into_iter().find(speaks).and_then(|note| note.place)
}

/// `if "q_a" in name: all_reduce(p.grad, group=tp_group)`, where the output of `q_a` goes into a layer that sums the gradient of its input
pub fn complete(view: &View<'_>, out: &mut Found) {
    if view.code().contains("sequence_parallel") {
        return;
    }
    for (at, call) in view.collectives() {
        let step = &view.steps[*at];
        let text = view.text(view.place(step.id)).to_lowercase();
        let named = |name: &str| ["tp", "tensor"].iter().any(|part| name.contains(part));
        let group = call.group.map(|g| near::deep(view, &view.expr(g)));
        let over = named(&text) || group.is_some_and(|g| g.any(&mut |e| e.last_name().is_some_and(named)));
        if call.rule.op != "all_reduce" || !over || !text.contains("grad") || step.loops.is_empty() {
            continue;
        }
        let mut words = Vec::new();
        for guard in step.guards.iter() {
            view.expr(guard.test).any(&mut |e| {
                words.extend(e.string().cloned());
                false
            });
        }
        words.retain(|word| word.len() > 2 && !word.contains("grad"));
        let Some((first, axes)) = summed_before(view, &words) else { continue };
        let told = step.guards.last().map_or(view.place(step.id), |g| view.part(g.at, 0));
        let mistake = Scales::SummedAgain { axes, first, sum: view.place(step.id) };
        out.push((told, Practice::Scales(mistake)));
        return;
    }
}

/// Where a class of the file calls a layer that sums the gradient of its input on what comes of a linear layer with one of these names, or
/// with one of these marks, and over which axes; a comment there says that the sequence may be whole as well as split.
fn summed_before(view: &View<'_>, words: &[Name]) -> Option<(Place, Vec<Name>)> {
    let module = view.at.module;
    view.project.modules[module].ir.classes.ids().filter(|_| !words.is_empty()).find_map(|class| {
        let at = ClassRef { module, class };
        let forward: Rc<View<'_>> = near::shared(view, view.project.own_method(at, "forward")?);
        let text = view.text(view.spot(view.project.class(at).span));
        if !speaks_of_both(view, at) {
            return None;
        }
        let all = used(&forward);
        all.iter().find_map(|(layer, step, given)| {
            let rule = kept_layer(&forward, class, layer).filter(|rule| sums_gradient(rule))?;
            let fed = all.iter().any(|(whole, from, _)| {
                let named =
                    words.iter().any(|word| whole.contains(word.as_str()) || text.contains(&format!(".{word} =")));
                let made = |def: usize| def >= *from;
                named
                    && from < step
                    && matches!(forward.steps[*from].stmt, Stmt::Assign { dst, .. } if near::reached(&forward, given, made).contains(dst))
                    && whole_linear(&forward, class, whole).is_some()
            });
            fed.then(|| (forward.place(forward.steps[*step].id), rule.default_group.clone()))
        })
    })
}

/// `reduce(parts + row(x)[0])`: the layer has summed its output over these ranks already.
pub fn completed(view: &View<'_>, out: &mut Found) {
    let Some(class) = near::class_of(view) else { return };
    let text = view.text(view.spot(view.project.class(ClassRef { module: view.at.module, class }).span)).to_lowercase();
    if near::has_any(
        &text,
        &["reduce_results", "reduce_output", "is_expert", "explicit", "skip_reduce", "delay_allreduce"],
    ) {
        return;
    }
    for (at, call) in view.collectives() {
        let invariant = |t: &Transition| t.result.set.contains(Spmd::Invariant) || call.rule.form == Form::InPlace;
        let sums = call.rule.op == "all_reduce" && call.rule.transitions.iter().all(|(_, t)| invariant(t));
        let (Some(input), true) = (call.input, sums) else { continue };
        let over = call.rule.default_group.clone();
        let mut terms = Vec::new();
        added(view, &view.expr(input), *at, 4, &mut terms);
        let found = terms.iter().flatten().filter(|_| terms.len() > 1).find_map(|step| {
            let Some(Rvalue::CallMethod { base, name, .. }) = view.value(*step).filter(|_| !over.is_empty()) else {
                return None;
            };
            let rule = near::is_self(view, base).then(|| kept_layer(view, class, name)).flatten()?;
            (scatters(&rule) && rule.default_group == over).then(|| (name.clone(), *step))
        });
        if let Some((layer, step)) = found {
            let summed = view.place(view.steps[*at].id);
            let mistake = Unshared::CompleteSummed { layer, completed: view.place(view.steps[step].id), summed };
            let made = near::local(input).and_then(|local| view.last_def(local, *at));
            let sum = made.map_or(summed, |def| view.place(view.steps[def].id));
            out.push((sum, Practice::Unshared(mistake)));
        }
    }
}

/// The calls whose results are added up in an expression, through variables, also those of which the first item is taken; `None`: another term.
fn added(view: &View<'_>, e: &Expr, before: usize, depth: usize, out: &mut Vec<Option<usize>>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match e {
        Expr::Binary(BinOp::Add, a, b) => {
            added(view, a, before, depth, out);
            added(view, b, before, depth, out);
        }
        Expr::Item(of, at) if **at == Expr::Const(Const::Int(0)) => added(view, of, before, depth, out),
        Expr::Call { step, .. } => out.push(Some(*step)),
        Expr::Local(local) => {
            if let Some(def) = view.last_def(*local, before) {
                added(view, &view.bound(def, *local), def, depth, out);
            }
        }
        _ => out.push(None),
    }
}

/// Whether a comment in a class says that its input is a part of the sequence, or else whole.
fn speaks_of_both(view: &View<'_>, class: ClassRef) -> bool {
    near::comments(view, view.project.class(class).span).into_iter().any(|note| {
        near::has_any(&note.text, &["sequence", "[s/tp", "slice of s", "/ tp"])
            && near::has_any(&note.text, &["else", " or "])
    })
}
