//! Gradients that come from another rank: a factor that every stage of a pipeline applies again, copies of one gradient that are added
//! up. In: functions that receive. Out: mistakes. Never: copies without a comment that says that they are. Next: `methods.rs`.

use super::Run;
use super::value::{Event, State, Test, Val, What};
use super::verdict::{Mistake, Wrong};
use crate::infer::practice::expr::Expr;
use crate::infer::practice::near;
use crate::infer::practice::view::View;
use crate::ir::{Const, FuncKind, Operand, Rvalue, StmtId};
use crate::project::{FuncRef, ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::{Files, Name, Place};
use crate::types::{AxisSet, Monomial, Scale};

/// Phrases that say that what is received is the same thing several times.
const COPIES: &[&str] =
    &["complete gradient", "same gradient", "identical", "copies", "the full gradient", "replicated"];

pub fn is_concerned(project: &Project, files: &Files, module: ModuleId) -> bool {
    let text = files[project.file(module)].whole();
    text.contains("recv(") && text.contains("send(") && text.contains("backward(")
}

/// Copies of one gradient that are stacked and summed.
pub fn copies(project: &Project, rules: &RuleBook, files: &Files, module: ModuleId) -> Vec<Mistake> {
    let text = files[project.file(module)].whole();
    if !text.contains("recv(") || !text.contains("stack(") {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (func, f) in project.modules[module].ir.funcs.iter_enumerated() {
        if f.kind == FuncKind::Function {
            let view = View::new(project, rules, files, FuncRef { module, func });
            out.extend((0..view.steps.len()).filter_map(|s| summed(&view, s)));
        }
    }
    out
}

/// `torch.stack(grads).sum(dim=0)` of a list whose tensors were received, one from each of several ranks.
fn summed(view: &View<'_>, step: usize) -> Option<Mistake> {
    let list = match view.value(step)? {
        Rvalue::CallMethod { base, name, .. } if name == "sum" => match view.through(base) {
            Expr::Call { callee, args, .. } if callee.last_name() == Some("stack") => match args.first() {
                Some((_, Expr::Local(list))) => *list,
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    };
    let received = (0..step).find_map(|s| {
        let value = view.value(s)?;
        let path = view.callee(value)?;
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
        let first = &args.first()?.value;
        (path == "torch.distributed.recv" && near::roots(view, first).contains(&list)).then_some(s)
    })?;
    if view.steps[received].loops.is_empty() {
        return None;
    }
    let notes = near::notes(view);
    let note = notes.iter().find(|n| n.text.contains("grad") && COPIES.iter().any(|w| n.text.contains(w)))?;
    let place = view.place(view.steps[step].id);
    let mut events = vec![Event { what: What::Received, place: view.place(view.steps[received].id), call: None }];
    events.extend(note.place.map(|place| Event { what: What::Said, place, call: None }));
    let who = view.local_name(list).clone();
    let (factor, summed) = (Monomial::one(), AxisSet::default());
    Some(Mistake { wrong: Wrong::Copies, place, who, factor, summed, events, beside: false })
}

impl<'a> Run<'a> {
    /// What a rank receives, by the variable that it is written to.
    pub fn receive(&mut self, operand: &Operand, state: &mut State) {
        if let Operand::Local(local) = operand {
            state.set(*local, Val::Received(None));
        }
    }

    /// A backward pass that starts with a gradient of its own: the loss says nothing of the factor then. What the next stage of a pipeline
    /// sends is the gradient of the same loss.
    pub fn backward_with(&mut self, id: StmtId, loss: &Val, gradient: Option<&Val>, state: &mut State) {
        let of_next_stage = |text: &Name| text.contains("grad");
        match gradient {
            None | Some(Val::Const(Const::None) | Val::Received(_)) => self.backward(id, loss, state),
            Some(Val::Named(text)) if of_next_stage(text) => self.backward(id, loss, state),
            Some(_) => self.backward(id, &Val::Test(Test::Known(true)), state),
        }
    }

    /// A received gradient that was multiplied is handed on to the backward pass of this stage.
    pub fn pass_on(&mut self, id: StmtId, gradient: Option<&Val>, state: &State) {
        let Some(frame) = state.frames.last() else { return };
        let func = self.project.func(frame.at);
        let text = self.files[self.project.file(frame.at.module)].slice(func.span);
        if !text.contains("send(") {
            return;
        }
        let place = self.place(state, id);
        let mistake = match gradient {
            Some(Val::Received(Some(at))) => {
                let backward = Event { what: What::Backward, place, call: None };
                let factor = Scale::one().known().cloned().unwrap_or(Monomial::one());
                let (who, summed) = (Name::from("gradient"), AxisSet::default());
                let events = vec![backward];
                Some(Mistake { wrong: Wrong::EachStage, place: *at, who, factor, summed, events, beside: false })
            }
            _ => None,
        };
        self.plain(place, state, mistake);
    }
}

/// Where a received gradient was multiplied.
pub fn multiplied(value: &Val, place: Place) -> Val {
    match value {
        Val::Received(None) => Val::Received(Some(place)),
        other => other.clone(),
    }
}
