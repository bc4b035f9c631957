//! Values that nobody differentiates. In: a statement of the function under execution. Out: whether all that reads its result looks at values
//! only, as a test does that compares. Never: execution. Next: `ops.rs`, which reports gradients that are lost.

use super::limits::MAX_MEASURED;
use super::machine::Machine;
use super::ops::Operand as Taken;
use super::repeated::{bound, statement};
use crate::ir::{Block, Func, LocalId, LocalKind, Operand, Rvalue, Stmt, StmtId};
use crate::rules::RuleBook;
use crate::rules::operator::Violation;
use crate::types::{Axis, AxisType, Reason};

/// Operations that tell something of a tensor, as logs and common scales want it.
const STATISTICS: &[&str] = &[
    "abs",
    "amax",
    "amin",
    "cosine_similarity",
    "max",
    "min",
    "norm",
    "pow",
    "round",
    "square",
    "std",
    "var",
    "vector_norm",
];

/// Operations that put terms into a sum.
const ADDS: &[&str] =
    &["add", "iadd", "radd", "index_add", "scatter_add", "index_put", "setitem", "sub", "masked_scatter", "where"];

impl Machine<'_> {
    /// Whether a term of a sum is looked at as what it is: by an operation that tells something of it, in a region without gradients inside a
    /// function that has some, or for eyes alone.
    pub(super) fn is_statistic(&self, id: StmtId, violation: Violation, op: &str) -> bool {
        // The run-time checker asks nothing of the kind.
        if self.w.modes.typecheck.is_some() {
            return false;
        }
        let own = op.rsplit('.').next().unwrap_or(op);
        let place = self.place(id);
        let text = self.files[place.file].whole();
        let after = &text[place.span.end as usize..];
        // `(total - own).norm()`
        let then = || after.strip_prefix(").").and_then(|rest| rest.split('(').next()).unwrap_or_default();
        let tells = match violation {
            Violation::PartialNonlinear => STATISTICS.contains(&own),
            Violation::PartialAffine => matches!(own, "sub" | "__sub__") && STATISTICS.contains(&then()),
            _ => false,
        };
        let region = || {
            let span = self.stack.last().map(|active| self.project.func(active.func).span);
            let before = span.filter(|span| span.contains(place.span.start));
            before.is_some_and(|span| {
                text[span.start as usize..place.span.start as usize].contains("with torch.no_grad()")
            })
        };
        tells && (!self.w.modes.grad && region() || self.is_only_looked_at(id))
    }

    /// Whether what is added to a pending sum may be a term of it: it differs by rank, and is no part of anything along a dim. Rows that the experts
    /// of this rank give are zero for the tokens of others.
    pub(super) fn may_be_term(&self, violation: Violation, axis: &Axis, op: &str, operands: &[Taken]) -> bool {
        if violation != Violation::PartialWithVarying || self.w.modes.typecheck.is_some() {
            return false;
        }
        let own = op.rsplit('.').next().unwrap_or(op).trim_matches('_');
        let varying = |o: &&Taken| o.ty.get(axis).set == AxisType::V;
        // What a declaration says it is, or a collective leaves, is no guess.
        let computed = |o: &Taken| {
            let state = o.ty.get(axis);
            let made = state.origin.as_ref().is_some_and(|origin| matches!(origin.reason, Reason::Computed));
            state.shard.is_none() && made
        };
        ADDS.contains(&own) && operands.iter().filter(varying).all(computed)
    }

    /// Whether the function under execution takes nothing but its object, and all that it returns is detached.
    pub(super) fn gives_detached(&self) -> bool {
        let Some(active) = self.stack.last() else { return false };
        // One that is given nothing computes something of parameters alone.
        let func = self.project.func(active.func);
        if func.params.len() > 1 {
            return false;
        }
        let text = self.files[self.project.file(active.func.module)].slice(func.span);
        let mut returned = text.lines().map(str::trim).filter(|line| line.starts_with("return ")).peekable();
        returned.peek().is_some() && returned.all(|line| line.ends_with(".detach()"))
    }

    /// What an operation tells of an operand. Where no gradient comes back it tells no Invariant value from a Replicate one.
    pub(super) fn told(&self, id: StmtId, set: AxisType, before: AxisType) -> AxisType {
        if set == before || set.meet(AxisType::EQUAL).is_empty() || self.w.modes.typecheck.is_some() {
            return set;
        }
        let place = self.place(id);
        let text = self.files[place.file].whole();
        let is_cut = || text.get(place.span.end as usize..).is_some_and(|rest| rest.starts_with(".detach()"));
        if !self.w.modes.grad || is_cut() { set.join(before.meet(AxisType::EQUAL)) } else { set }
    }

    /// Whether a statement computes a variable that only operations read through which no gradient comes back.
    pub fn is_only_looked_at(&self, id: StmtId) -> bool {
        let func = self.func();
        if func.code.count() > MAX_MEASURED {
            return false;
        }
        let Some(Stmt::Assign { dst: local, .. }) = statement(func.body(), id) else { return false };
        if !matches!(func.locals()[*local].kind, LocalKind::Plain | LocalKind::Temp) {
            return false;
        }
        let (mut uses, mut values) = (Uses::default(), Vec::new());
        uses.collect(self.rules, func, func.body(), *local);
        bound(func.body(), *local, &mut values);
        // The two sides of a conditional expression bind one temporary.
        let sides = if func.locals()[*local].kind == LocalKind::Temp { 2 } else { 1 };
        uses.looks > 0 && uses.others == 0 && values.len() <= sides
    }
}

/// What a function does with a variable.
#[derive(Debug, Default)]
struct Uses {
    looks: usize,
    others: usize,
}

impl Uses {
    fn collect(&mut self, rules: &RuleBook, func: &Func, block: &Block, local: LocalId) {
        for node in block {
            let reads = node.stmt.operands().into_iter().any(|operand| *operand == Operand::Local(local));
            match reads {
                true if looks(rules, func, &node.stmt, local) => self.looks += 1,
                true => self.others += 1,
                false => {}
            }
            node.stmt.blocks().for_each(|inner| self.collect(rules, func, inner, local));
        }
    }
}

/// Builtins that show a value.
const SHOWS: &[&str] = &["print", "repr", "str", "len"];

/// Whether no gradient comes back through a statement to a variable. The method of a
/// variable may do anything with what it is given; that of a path is the function of a library.
fn looks(rules: &RuleBook, func: &Func, stmt: &Stmt, local: LocalId) -> bool {
    let Stmt::Assign { value, .. } = stmt else { return false };
    match value {
        Rvalue::Attr { name, .. } => rules.only_looks(name),
        Rvalue::CallMethod { base: Operand::Local(base), name, args } => {
            let given = args.iter().any(|arg| arg.value == Operand::Local(local));
            let path = func.locals()[*base].kind == LocalKind::Temp;
            rules.only_looks(name) && (path || !given || *base == local)
        }
        Rvalue::CallMethod { base: Operand::Global(_), name, .. } => rules.only_looks(name),
        Rvalue::Call { callee: Operand::Global(name), .. } => rules.only_looks(name) || SHOWS.contains(&name.as_str()),
        Rvalue::Compare { .. } => true,
        _ => false,
    }
}
