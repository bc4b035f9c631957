//! `Sum.apply(x)` as a statement: a function whose forward sums its argument where it lies is called for that alone. In: the call and what
//! it gives. Out: the argument as the sum that it has become. Never: a result that somebody reads. Next: `apply.rs`.

use crate::infer::expr::CallArgs;
use crate::infer::machine::{Eval, Machine};
use crate::infer::practice::view::View;
use crate::infer::value::Value;
use crate::ir::{Operand, Stmt, StmtId};
use crate::project::ClassRef;
use crate::rules::Form;
use crate::types::{AxisState, AxisType, LocalType, TensorType};

impl Machine<'_> {
    /// The result of `Function.apply(..)`, and what is left in an argument that the forward writes into.
    pub fn left_in_argument(&mut self, id: StmtId, class: ClassRef, args: &CallArgs, result: Eval) -> Eval {
        if !self.is_statement(id) || self.w.modes.typecheck.is_some() {
            return result;
        }
        let Some(summed) = self.summed_argument(class).and_then(|at| args.positional(at)).cloned() else {
            return result;
        };
        match result {
            Eval::One(value) => {
                self.leave_sum(&summed, &value);
                Eval::One(value)
            }
            Eval::Many(mut outcomes) => {
                for (world, value) in &mut outcomes {
                    self.w = std::mem::take(world);
                    self.leave_sum(&summed, value);
                    *world = std::mem::take(&mut self.w);
                }
                Eval::Many(outcomes)
            }
        }
    }

    /// Whether a call is a statement of its own, whose result nobody reads.
    fn is_statement(&self, id: StmtId) -> bool {
        let place = self.place(id);
        let text = self.files[place.file].whole();
        let (before, after) = (&text[..place.span.start as usize], &text[place.span.end as usize..]);
        let starts = before.chars().rev().find(|c| !matches!(c, ' ' | '\t')).is_none_or(|c| c == '\n');
        let ends =
            after.lines().next().is_none_or(|rest| rest.trim_start().is_empty() || rest.trim_start().starts_with('#'));
        if !(starts && ends) {
            return false;
        }
        let Some(at) = self.stack.last().map(|active| active.func) else { return false };
        let view = View::new(self.project, self.rules, self.files, at);
        view.steps.iter().find(|step| step.id == id).is_some_and(|step| match step.stmt {
            Stmt::Assign { dst, .. } => view.is_temp(*dst) && !view.is_read(*dst),
            _ => false,
        })
    }

    /// The argument of `apply` that the forward of a function sums where it lies, on every way through it.
    fn summed_argument(&self, class: ClassRef) -> Option<usize> {
        let view = View::new(self.project, self.rules, self.files, self.project.own_method(class, "forward")?);
        let [(step, call)] = view.collectives() else { return None };
        let Some(Operand::Local(local)) = call.input else { return None };
        let plain = view.steps[*step].guards.is_empty() && view.steps[*step].loops.is_empty();
        let summed =
            plain && call.rule.form == Form::InPlace && call.rule.op == "all_reduce" && view.is_as_given(*local);
        let at = view.func.params.iter().position(|param| param.local == *local).filter(|_| summed)?;
        // The context comes first.
        at.checked_sub(1)
    }

    /// Where the result is a sum that all ranks have, so is the argument; its gradient goes by the function, as if nothing were summed.
    fn leave_sum(&mut self, argument: &Value, result: &Value) {
        let (Some(at), Some(given)) = (self.as_tensor(argument), self.tensor(result).map(|t| t.local.clone())) else {
            return;
        };
        let Some(old) = self.w.heap.tensor(at).cloned() else { return };
        let mut local = old.local.clone();
        for axis in LocalType::axes_of([&given]) {
            let (was, state) = (old.local.get(&axis).set, given.get(&axis).clone());
            if state.set.is_empty() || !state.set.leq(AxisType::EQUAL) || was.leq(AxisType::EQUAL) && !was.is_empty() {
                continue;
            }
            local.set(&axis, AxisState { set: AxisType::I, ..state });
        }
        self.retype(at, TensorType { local, term: old.term.clone(), ..old });
    }
}
