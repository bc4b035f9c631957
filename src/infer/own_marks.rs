//! Marks that only the project knows: `p.sum_grad_over_tp = True`, where a function of it sums the gradients of what carries the mark. In: the name of an attribute that a
//! parameter gets. Out: the axes over which its gradient is summed, which makes it Replicate there. Never: a sum under a condition, beside a
//! division or an average, that may not be called, or over a group of which the object at hand has none of that name. Source: DESIGN.md
//! section 7, marks. Next: `layer.rs`, which types the parameter; `practice/reducers.rs`, which finds the sums.

use super::machine::Machine;
use super::practice::near;
use super::practice::view::View;
use super::value::Value;
use crate::ir::{FuncKind, Rvalue};
use crate::project::FuncRef;
use crate::source::Name;
use crate::types::Axis;

/// What makes up for a sum in its own function.
const MADE_UP: &[&str] = &["div", "/", "scale", "mul_("];

/// Whether a test asks for nothing but the round: each of so many passes ends with a step.
const ROUNDS: &[&str] = &["%", "accum", "step"];

impl Machine<'_> {
    /// The axes over which the project sums the gradients of parameters with a mark, as the object at hand has the group.
    pub fn summed_by_mark(&mut self, mark: &Name) -> Option<Vec<Axis>> {
        let mut sums = self.settings.reducers().all.iter().filter(|r| r.asks(mark));
        let (Some(sum), None) = (sums.next(), sums.next()) else { return None };
        let is_plain = sum.outer.is_empty() && sum.only_when.as_ref().is_some_and(Vec::is_empty);
        let (group, at) = (sum.group.clone().filter(|_| is_plain)?, sum.func);
        let receiver = self.func().params.first().filter(|p| p.name == "self").map(|p| p.local)?;
        let held = match self.local(receiver) {
            Value::Object(id) => self.w.heap.object(id)?.get(&group)?.clone(),
            _ => return None,
        };
        let axes = self.axes_of_value(&held)?;
        let known = self.sums_run.get(&at).copied();
        let runs = known.unwrap_or_else(|| self.always_runs(at));
        self.sums_run.insert(at, runs);
        runs.then(|| axes.iter().cloned().collect())
    }

    /// Whether a function that sums does nothing else to gradients, and every call of it that the project writes is made.
    fn always_runs(&self, at: FuncRef) -> bool {
        let sum = View::new(self.project, self.rules, self.files, at);
        let name = sum.func.name.clone();
        if near::has_any(sum.code(), MADE_UP) {
            return false;
        }
        let mut calls = 0;
        for file in self.files.saying(&name) {
            let Some(module) = self.project.module_of(file) else { continue };
            for (func, f) in self.project.modules[module].ir.funcs.iter_enumerated() {
                if f.kind == FuncKind::ClassBody || !self.files[file].slice(f.span).contains(name.as_str()) {
                    continue;
                }
                let view = View::new(self.project, self.rules, self.files, FuncRef { module, func });
                for step in 0..view.steps.len() {
                    let calls_it = match view.value(step) {
                        Some(Rvalue::CallMethod { name: called, .. }) => *called == name,
                        Some(value @ Rvalue::Call { .. }) => {
                            view.callee(value).is_some_and(|path| path.rsplit('.').next() == Some(name.as_str()))
                        }
                        _ => false,
                    };
                    let round = |text: &str| near::has_any(text, ROUNDS);
                    let made = || view.steps[step].guards.iter().all(|g| round(view.text(view.part(g.at, 0))));
                    if calls_it && !made() {
                        return false;
                    }
                    calls += usize::from(calls_it);
                }
            }
        }
        calls > 0
    }
}
