//! Tests of what objects keep and nobody knows: `if self.layout == "sequence"`, where the constructor computed it in a way that is not followed.
//! In: attributes of objects, and comparisons of them, whose value is unknown. Out: for each of them one atom, so that two tests of the same
//! thing go the same way. Never: a guess about their truth. Next: `exec.rs`, which branches.

use super::formula::{Atom, Formula, show_const};
use super::limits::MAX_KEPT_TESTS;
use super::machine::{Eval, Machine};
use super::value::Value;
use crate::ir::{CmpOp, LocalId, Operand, Rvalue, StmtId, UnOp};
use crate::project::FuncRef;
use crate::source::Name;

/// An unknown value, the variable that has it, and what it is called.
pub type Kept = Option<(Variable, Name, bool)>;

/// A variable of one activation: how many there are, and the function.
type Variable = (usize, FuncRef, LocalId);

impl Machine<'_> {
    /// The value of an assignment. An unknown one is noted if an object keeps it.
    pub(super) fn rvalue_for(&mut self, id: StmtId, dst: LocalId, value: &Rvalue) -> Eval {
        let eval = self.rvalue(id, value);
        let variable = self.variable(dst);
        if matches!(eval, Eval::One(Value::Unknown)) {
            self.note_kept(variable, value);
        } else if self.kept.as_ref().is_some_and(|(of, _, _)| *of == variable) {
            self.kept = None;
        }
        eval
    }

    /// Notes that a variable got an unknown value which an object keeps, or a comparison of one.
    fn note_kept(&mut self, dst: Variable, value: &Rvalue) {
        match value {
            Rvalue::Attr { base, name } => {
                let Value::Object(id) = self.operand(base) else { return };
                let path = self.w.heap.object(id).map(|object| format!("{}.{name}", object.path));
                self.kept = path.filter(|path| path.contains('#')).map(|path| (dst, Name::from(path), true));
            }
            Rvalue::Compare { op, left: Operand::Local(left), right } => {
                let left = self.variable(*left);
                let Some((_, path, true)) = self.kept.clone().filter(|(of, _, _)| *of == left) else { return };
                let holds = match op {
                    CmpOp::Eq | CmpOp::Is => true,
                    CmpOp::Ne | CmpOp::IsNot => false,
                    CmpOp::Lt | CmpOp::Le | CmpOp::Gt | CmpOp::Ge | CmpOp::In | CmpOp::NotIn => return,
                };
                let with = match self.operand(right) {
                    Value::Const(c) => show_const(&c),
                    Value::Path(path) | Value::Sym(path) => path.rsplit('.').next().unwrap_or(&path).to_owned(),
                    _ => return,
                };
                self.kept = Some((dst, Name::from(format!("{path} is {with}")), holds));
            }
            Rvalue::Unary { op: UnOp::Not, operand: Operand::Local(of) } => {
                let of = self.variable(*of);
                let Some((_, path, holds)) = self.kept.clone().filter(|(noted, _, _)| *noted == of) else { return };
                self.kept = Some((dst, path, !holds));
            }
            // Another value than that which was noted.
            _ if self.kept.as_ref().is_some_and(|(of, _, _)| *of == dst) => self.kept = None,
            _ => {}
        }
    }

    fn variable(&self, local: LocalId) -> Variable {
        (self.stack.len(), self.activation(), local)
    }

    /// What a test of a variable asks, if its value is one that an object keeps.
    pub(super) fn kept_test(&self, test: &Operand) -> Option<Formula> {
        let (of, name, holds) = self.kept.as_ref().filter(|_| self.deriving.is_none())?;
        let Operand::Local(local) = test else { return None };
        // Each such test may double the configurations: those of a long function are followed without it.
        if self.func().code.count() > MAX_KEPT_TESTS {
            return None;
        }
        // What the function itself stores anew is not what it was.
        let attribute = name.split(" is ").next().and_then(|path| path.rsplit('.').next()).unwrap_or_default();
        let text = self.files[self.project.file(of.1.module)].slice(self.func().span);
        if *of != self.variable(*local) || text.contains(&format!(".{attribute} = ")) {
            return None;
        }
        let atom = Formula::Atom(Atom::True(name.clone()));
        Some(if *holds { atom } else { atom.negate() })
    }
}
