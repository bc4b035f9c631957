//! Functions of the project that give back what they are given, summed or averaged over all ranks. In: a call. Out: whether its first
//! argument comes back so. Never: other groups, extremes, or a function that does anything else with the value on a way that is not
//! understood. Source: torch.distributed, `all_reduce`. Next: `counts.rs`, which asks.

use super::expr::Expr;
use super::near;
use super::only_some::callee;
use super::raw::{Sort, raw};
use super::reducers::is_size;
use super::view::{Guard, View};
use crate::ir::{Arg, ArgKind, BinOp, CmpOp, Const, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::rules::Form;
use rustc_hash::FxHashMap;

/// How long a function may be.
const MOST_STEPS: usize = 48;

/// Methods and functions that give the same numbers.
const SAME: &[&str] = &[
    "clone",
    "detach",
    "cuda",
    "cpu",
    "to",
    "float",
    "double",
    "contiguous",
    "tensor",
    "as_tensor",
    "item",
    "type_as",
];

/// How the ranks' values are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduced {
    Sum,
    Mean,
}

/// What a value in the function is, compared with what it was given.
#[derive(Clone, Copy, PartialEq)]
struct Made {
    summed: bool,
    divided: bool,
}

/// How a call reduces its first argument, which it gives back.
pub fn of_call(view: &View<'_>, step: usize) -> Option<Reduced> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let inner = near::shared(view, callee(view, value)?);
    if inner.steps.len() > MOST_STEPS || inner.func.is_generator || inner.func.is_async {
        return None;
    }
    let method = usize::from(inner.func.class.is_some() && matches!(value, Rvalue::CallMethod { .. }));
    let given = inner.func.params.get(method)?;
    args.first().filter(|a| a.kind == ArgKind::Positional)?;
    let mut run = Run { inner: &inner, view, args, method, made: FxHashMap::default() };
    run.made.insert(given.local, Made { summed: false, divided: false });
    let end = run.executed()?;
    end.summed.then_some(if end.divided { Reduced::Mean } else { Reduced::Sum })
}

/// One way through the function: that of several ranks, with what this call gives.
struct Run<'r, 'a> {
    inner: &'r View<'a>,
    view: &'r View<'a>,
    args: &'a [Arg],
    method: usize,
    made: FxHashMap<LocalId, Made>,
}

impl Run<'_, '_> {
    /// What is returned.
    fn executed(&mut self) -> Option<Made> {
        for (at, step) in self.inner.steps.iter().enumerate() {
            let mut runs = true;
            for guard in step.guards.iter() {
                match self.holds(guard) {
                    Some(holds) => runs &= holds,
                    None if self.concerns(step.stmt) => return None,
                    None => runs = false,
                }
            }
            if !runs {
                continue;
            }
            match step.stmt {
                Stmt::Return { value } => return self.value(&self.inner.expr(value)),
                Stmt::Assign { dst, value } => self.assigned(at, *dst, value)?,
                stmt if self.concerns(stmt) && !matches!(stmt, Stmt::If { .. } | Stmt::Assert { .. }) => return None,
                _ => {}
            }
        }
        None
    }

    /// Whether a statement reads or binds what is followed.
    fn concerns(&self, stmt: &Stmt) -> bool {
        let reads = |o: &&Operand| matches!(o, Operand::Local(l) if self.made.contains_key(l));
        let binds = matches!(stmt, Stmt::Assign { dst, .. } if self.made.contains_key(dst));
        binds || matches!(stmt, Stmt::Return { .. }) || stmt.operands().iter().any(reads)
    }

    fn assigned(&mut self, at: usize, dst: LocalId, value: &Rvalue) -> Option<()> {
        if let Some((local, sums)) = self.reduction(at) {
            let before = self.made.get(&local).copied()?;
            let is_sum = sums == "SUM";
            let known = (is_sum || sums == "AVG") && !before.summed;
            self.made.insert(local, Made { summed: true, divided: before.divided || !is_sum });
            return known.then_some(());
        }
        // A temporary of the text is expanded where it is read.
        if let Rvalue::CallMethod { base, name, args } = value
            && let Some(local) = near::local(base).filter(|l| self.made.contains_key(l))
            && name.ends_with('_')
        {
            let by_ranks = args.first().is_some_and(|a| is_size(self.inner, &self.inner.expr(&a.value)));
            let before = self.made.get(&local).copied()?;
            self.made.insert(local, Made { divided: true, ..before });
            return (name == "div_" && by_ranks && !before.divided).then_some(());
        }
        let bound = self.inner.bound(at, dst);
        match self.value(&bound) {
            Some(made) => {
                self.made.insert(dst, made);
            }
            None => {
                self.made.remove(&dst);
            }
        }
        Some(())
    }

    /// The variable that a step reduces in place over all ranks, and by which operator.
    fn reduction(&self, at: usize) -> Option<(LocalId, String)> {
        let call =
            raw(self.inner, self.inner.value(at)?).filter(|c| c.sort == Sort::Everyone && c.name == "all_reduce")?;
        let rule = self.inner.collective(self.inner.value(at)?).filter(|c| c.rule.form == Form::InPlace)?.rule;
        if call.is_async() || call.group.is_some_and(|g| !self.is_none(&self.inner.expr(g))) {
            return None;
        }
        let position = rule.reduce_op?;
        let operator = self.inner.argument(call.args, position, &rule.args.params.get(position)?.name);
        let operator = match operator.map(|o| near::deep(self.inner, &self.inner.expr(o))) {
            None => "SUM".to_string(),
            Some(Expr::Choice(test, a, b)) => {
                let taken = if self.truth(&test)? { a } else { b };
                taken.last_name()?.to_string()
            }
            Some(other) => other.last_name()?.to_string(),
        };
        Some((near::local(call.buffer?)?, operator))
    }

    fn value(&self, expr: &Expr) -> Option<Made> {
        match expr {
            Expr::Local(local) => self.made.get(local).copied(),
            Expr::Binary(BinOp::Div, of, by) if is_size(self.inner, by) => {
                let made = self.value(of).filter(|made| !made.divided)?;
                Some(Made { divided: true, ..made })
            }
            Expr::Call { callee, args, .. } if callee.last_name().is_some_and(|name| SAME.contains(&name)) => {
                match &**callee {
                    Expr::Attr(base, _) => self.value(base),
                    Expr::Path(_) => self.value(&args.first()?.1),
                    _ => None,
                }
            }
            Expr::Choice(test, a, b) => self.value(if self.truth(test)? { a } else { b }),
            _ => None,
        }
    }

    fn holds(&self, guard: &Guard<'_>) -> Option<bool> {
        self.truth(&self.inner.expr(guard.test)).map(|holds| holds == guard.holds)
    }

    /// Whether a test holds among several ranks, with the arguments of this call.
    fn truth(&self, test: &Expr) -> Option<bool> {
        match test {
            Expr::Unary(UnOp::Not, inner) => self.truth(inner).map(|holds| !holds),
            Expr::Bool { and, of } => {
                let all: Vec<Option<bool>> = of.iter().map(|e| self.truth(e)).collect();
                match all.contains(&Some(!and)) {
                    true => Some(!and),
                    false => all.iter().all(|e| *e == Some(*and)).then_some(*and),
                }
            }
            Expr::Call { callee, .. } if matches!(callee.last_name(), Some("is_initialized" | "is_available")) => {
                Some(true)
            }
            Expr::Compare(op, a, b) if is_size(self.inner, a) => match (op, &**b) {
                (CmpOp::Eq | CmpOp::Le, Expr::Const(Const::Int(1))) | (CmpOp::Lt, Expr::Const(Const::Int(2))) => {
                    Some(false)
                }
                (CmpOp::Ne | CmpOp::Gt, Expr::Const(Const::Int(1))) | (CmpOp::Ge, Expr::Const(Const::Int(2))) => {
                    Some(true)
                }
                _ => None,
            },
            Expr::Compare(op, a, b) => {
                let (a, b) = (self.constant(a)?, self.constant(b)?);
                match op {
                    CmpOp::Eq | CmpOp::Is => Some(a == b),
                    CmpOp::Ne | CmpOp::IsNot => Some(a != b),
                    _ => None,
                }
            }
            Expr::Local(_) => match self.constant(test)? {
                Const::Bool(holds) => Some(holds),
                _ => None,
            },
            _ => None,
        }
    }

    fn is_none(&self, expr: &Expr) -> bool {
        expr.is_none() || self.constant(expr) == Some(Const::None)
    }

    /// What a constant is, or a parameter that this call gives one for, or leaves at its default.
    fn constant(&self, expr: &Expr) -> Option<Const> {
        match expr {
            Expr::Const(constant) => Some(constant.clone()),
            Expr::Local(local) => {
                let at = self.inner.func.params.iter().position(|p| p.local == *local)?;
                let param = &self.inner.func.params[at];
                if !self.inner.defs(*local).is_empty() || self.args.iter().any(|a| is_spread(&a.kind)) {
                    return None;
                }
                match self.view.argument(self.args, at.checked_sub(self.method)?, &param.name) {
                    Some(Operand::Const(constant)) => Some(constant.clone()),
                    Some(_) => None,
                    None => near::default_of(self.inner, at),
                }
            }
            _ => None,
        }
    }
}

fn is_spread(kind: &ArgKind) -> bool {
    matches!(kind, ArgKind::Star | ArgKind::DoubleStar)
}
