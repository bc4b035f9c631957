//! Weights that two stages of a pipeline have alike. In: a class. Out: a weight that its constructor makes equal over a group of embeddings,
//! where gradients of parameters are reduced by functions of the file and none runs over that group. Never: groups of replicas, whose
//! gradients are averaged elsewhere. Next: `reducers.rs`.

use super::beside::Question;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::reducers::is_gradient;
use super::view::View;
use super::{Class, Found, Lint};
use crate::ir::{Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// Words in names of groups whose ranks share one weight.
const TIED: &[&str] = &["embedding", "embd", "embed", "tied", "tie_", "shared_weight", "first_last"];

/// `broadcast(self.word_embeddings.weight.data, group=embedding_group)`, and never a sum of its gradient.
pub fn weights<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let file = lint.project.file(class.at.module);
    let own = lint.files[file].slice(lint.project.class(class.at).span);
    if !["broadcast", "all_reduce"].iter().any(|w| own.contains(w)) {
        return;
    }
    if !class.beside.answer(Question::Ties(class.at.module), || may_tie(lint.files[file].whole())) {
        return;
    }
    let methods = lint.project.class(class.at).methods.iter();
    let views: Vec<View<'a>> =
        methods.map(|(_, func)| lint.view(FuncRef { module: class.at.module, func: *func })).collect();
    let Some((made, group, name)) = views.iter().find_map(equalised) else { return };
    let mut reducer: Option<(View<'a>, Place)> = None;
    for func in lint.project.modules[class.at.module].ir.funcs.ids() {
        let view = lint.view(FuncRef { module: class.at.module, func });
        for (i, call) in view.collectives() {
            let place = view.place(view.steps[*i].id);
            let over = call.group.map(|g| view.through(g));
            let same = over.as_ref().is_some_and(|g| named(&view, g) == named_of(&group) || speaks(&view, g));
            let speaks_of = || [".grad", "main_grad"].iter().any(|w| view.code().contains(w));
            let gradient = call.input.is_some_and(|o| is_gradient(&view.through(o)) || speaks_of());
            if gradient && (same || over.is_none()) {
                return;
            }
            if gradient && call.rule.op == "all_reduce" && super::reducers::parameter_loop(&view, *i).is_some() {
                reducer = Some((lint.view(view.at), place));
            }
        }
    }
    let Some((reducing, reduced)) = reducer else { return };
    let Some((step, called)) = stepped(lint, class, &reducing) else { return };
    let found = Membership::TiedNotSummed { group: name, made, reduced, called };
    out.push((step, Practice::Membership(found)));
}

/// Whether a file names tied weights and steps, and nothing that may sum their gradients in a way that is not followed.
fn may_tie(text: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    has(TIED)
        && text.contains("grad")
        && text.contains(".step(")
        && !has(&["hook", "finalize", "DistributedDataParallel", "FSDP", "fully_shard"])
}

/// The collective that makes a weight of the object equal over a group of embeddings, with the group.
fn equalised(view: &View<'_>) -> Option<(Place, Expr, Name)> {
    (0..view.steps.len()).find_map(|i| {
        let value = view.value(i)?;
        let (input, group) = match view.collective(value) {
            Some(call) => (call.input.filter(|_| call.rule.op == "all_reduce")?, call.group?),
            None => {
                let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
                view.callee(value).filter(|path| path == "torch.distributed.broadcast")?;
                (view.argument(args, 0, "tensor")?, view.argument(args, 2, "group")?)
            }
        };
        let (input, group) = (view.through(input), view.through(group));
        let data = matches!(&input, Expr::Attr(_, name) if name == "data") || view.without_gradient(i);
        let name = named(view, &group)?;
        (data && speaks(view, &group)).then(|| (view.place(view.steps[i].id), group.clone(), name))
    })
}

/// The last name of a group.
fn named(view: &View<'_>, group: &Expr) -> Option<Name> {
    match group {
        Expr::Local(l) => Some(view.local_name(*l).clone()),
        Expr::Call { callee, .. } => callee.last_name().map(Name::from),
        other => other.last_name().map(Name::from),
    }
}

fn named_of(group: &Expr) -> Option<Name> {
    match group {
        Expr::Call { callee, .. } => callee.last_name().map(Name::from),
        other => other.last_name().map(Name::from),
    }
}

fn speaks(view: &View<'_>, group: &Expr) -> bool {
    named(view, group).is_some_and(|n| TIED.iter().any(|w| n.to_lowercase().contains(w)))
}

/// A step of an optimizer in a function that reduces gradients, or calls what does.
fn stepped(lint: &Lint<'_>, class: &Class<'_>, reducing: &View<'_>) -> Option<(Place, Option<Place>)> {
    let named = &reducing.func.name;
    let called = |view: &View<'_>| {
        let calls = |i: &usize| match view.value(*i) {
            Some(Rvalue::Call { callee: Operand::Global(name), .. } | Rvalue::CallMethod { name, .. }) => name == named,
            _ => false,
        };
        (0..view.steps.len()).find(calls).map(|i| view.place(view.steps[i].id))
    };
    for func in lint.project.modules[class.at.module].ir.funcs.ids() {
        let view = lint.view(FuncRef { module: class.at.module, func });
        let steps = |i: &usize| match (view.steps[*i].stmt, view.value(*i)) {
            (Stmt::Assign { .. }, Some(Rvalue::CallMethod { base, name, .. })) if name == "step" => {
                let base = match view.through(base) {
                    Expr::Local(l) => Some(view.local_name(l).to_string()),
                    other => other.last_name().map(str::to_string),
                };
                base.is_some_and(|b| b.to_lowercase().contains("optim"))
            }
            _ => false,
        };
        let Some(step) = (0..view.steps.len()).find(steps) else { continue };
        let call = called(&view);
        if call.is_some() || view.at == reducing.at {
            return Some((view.place(view.steps[step].id), call));
        }
    }
    None
}
