//! Tests of what objects keep and nobody knows: `if self.layout == "sequence"`, where the constructor computed it in a way that is not followed.
//! In: attributes of objects, and comparisons of them, whose value is unknown. Out: for each of them one atom, so that two tests of the same
//! thing go the same way. Never: a guess about their truth. Next: `exec.rs`, which branches.

use super::formula::{Atom, Formula, show_const};
use super::machine::{Eval, Machine};
use super::value::Value;
use crate::ir::{CmpOp, LocalId, Operand, Rvalue, StmtId};
use crate::source::Name;

/// An unknown value, the variable that has it, and what it is called.
pub type Kept = Option<(LocalId, Name, bool)>;

impl Machine<'_> {
    /// The value of an assignment. An unknown one is noted if an object keeps it.
    pub(super) fn rvalue_for(&mut self, id: StmtId, dst: LocalId, value: &Rvalue) -> Eval {
        let eval = self.rvalue(id, value);
        if matches!(eval, Eval::One(Value::Unknown)) {
            self.note_kept(dst, value);
        }
        eval
    }

    /// Notes that a variable got an unknown value which an object keeps, or a comparison of one.
    fn note_kept(&mut self, dst: LocalId, value: &Rvalue) {
        match value {
            Rvalue::Attr { base, name } => {
                let Value::Object(id) = self.operand(base) else { return };
                let path = self.w.heap.object(id).map(|object| format!("{}.{name}", object.path));
                self.kept = path.filter(|path| path.contains('#')).map(|path| (dst, Name::from(path), true));
            }
            Rvalue::Compare { op, left: Operand::Local(left), right } => {
                let Some((_, path, true)) = self.kept.clone().filter(|(local, _, _)| local == left) else { return };
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
            _ => {}
        }
    }

    /// What a test of a variable asks, if its value is one that an object keeps.
    pub(super) fn kept_test(&self, test: &Operand) -> Option<Formula> {
        let (local, name, holds) = self.kept.as_ref().filter(|_| self.deriving.is_none())?;
        let atom = Formula::Atom(Atom::True(name.clone()));
        (*test == Operand::Local(*local)).then(|| if *holds { atom } else { atom.negate() })
    }
}
