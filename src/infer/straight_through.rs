//! Values whose forward is one thing and whose gradient is another's: a term is added and, outside of the gradient, taken away again. In: an
//! operation that the rules refuse. Out: whether the line is of this form, so that what is refused cancels. Never: what
//! goes anywhere else. Source: Bengio et al. 2013, "Estimating or Propagating Gradients Through Stochastic Neurons". Next: `ops.rs`, which asks.

use super::limits::MAX_ORIGIN_STEPS;
use super::machine::Machine;
use super::ops::Operand as Given;
use super::repeated::statement;
use super::whole::readers_of;
use crate::ir::{BinOp, Block, Func, LocalId, Operand, Rvalue, Stmt, StmtId};
use crate::source::Span;
use crate::types::{Axis, Tri};

/// How a value is taken out of the gradient.
const DETACHED: &str = ".detach()";

/// What a variable is outside of the gradient, where one statement makes it so.
fn detached_from<'f>(func: &'f Func, value: &Operand) -> Option<&'f Operand> {
    let Operand::Local(local) = value else { return None };
    let made = assigning(func.body(), *local);
    match made.as_slice() {
        [Rvalue::CallMethod { base, name, .. }] if name == "detach" => Some(base),
        _ => None,
    }
}

/// What a block assigns to a variable.
fn assigning(block: &Block, local: LocalId) -> Vec<&Rvalue> {
    let mut out = Vec::new();
    for node in block {
        match &node.stmt {
            Stmt::Assign { dst, value } if *dst == local => out.push(value),
            stmt => out.extend(stmt.blocks().flat_map(|inner| assigning(inner, local))),
        }
    }
    out
}

impl Machine<'_> {
    /// Whether the line takes away, outside of the gradient, what it adds: `out + bias + (bias / n - bias).detach()`, where the forward is that
    /// of one term and the gradient that of the whole, or `x + (total - x).detach()`, where the forward is the total.
    pub(super) fn is_straight_through(&self, id: StmtId, axis: &Axis, op: &str, operands: &[Given]) -> bool {
        let place = self.place(id);
        let text = self.files[place.file].whole();
        let (start, end) = (place.span.start as usize, place.span.end as usize);
        let rest = text[end..].lines().next().unwrap_or_default();
        let said = |span: Span| &text[span.start as usize..span.end as usize];
        let is_param = |o: &&Given| o.ty.get(axis).is_unmarked();
        let of_whole = rest.contains(").detach()")
            && operands.iter().filter(is_param).any(|o| {
                let span = self.part(id, o.part).span;
                (start..end).contains(&(span.start as usize)) && rest.contains(&format!("- {})", said(span)))
            });
        let taken = operands.last().map(|o| said(self.part(id, o.part).span));
        let cut = taken.and_then(|taken| taken.strip_suffix(DETACHED));
        let untracked =
            rest.starts_with(").detach()") || rest.starts_with(')') && (cut.is_some() || !self.w.modes.grad);
        let takes_away = matches!(op.rsplit('.').next(), Some("sub" | "__sub__"));
        let of_total = || {
            let line = text[..start].rsplit('\n').next().unwrap_or_default();
            let added = line.strip_suffix('(').and_then(|l| l.trim_end().strip_suffix('+')).map(str::trim_end);
            let taken = cut.or(taken);
            let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ']' | ')');
            let same = |added: &str, taken: &str| added.strip_suffix(taken).is_some_and(|rest| !rest.ends_with(word));
            added.zip(taken).is_some_and(|(added, taken)| same(added, taken))
        };
        of_whole || takes_away && (untracked && of_total() || self.is_added_back(id))
    }

    /// Whether what a statement takes away is added again where its difference goes, outside of the gradient: `rest = (total - x).detach()`,
    /// `x + rest`.
    fn is_added_back(&self, id: StmtId) -> bool {
        let func = self.func();
        let Some(Stmt::Assign { dst, value: Rvalue::Binary { right: taken, .. } }) = statement(func.body(), id) else {
            return false;
        };
        // `y - x.detach()` takes away `x`.
        let cut = detached_from(func, taken);
        let taken = cut.unwrap_or(taken);
        let (mut held, mut detached, mut added) = (vec![*dst], cut.is_some() || !self.w.modes.grad, false);
        let mut at = 0;
        while let Some(local) = held.get(at).copied() {
            at += 1;
            let mut readers = Vec::new();
            readers_of(func.body(), local, &mut readers);
            for reader in readers {
                let is = |o: &Operand| *o == Operand::Local(local);
                match statement(func.body(), reader) {
                    Some(Stmt::Assign { dst, value: Rvalue::CallMethod { base, name, .. } })
                        if is(base) && name == "detach" =>
                    {
                        detached = true;
                        held.extend(Some(*dst).filter(|dst| !held.contains(dst)));
                    }
                    Some(Stmt::Assign { dst, value: Rvalue::Use(from) }) if is(from) => {
                        held.extend(Some(*dst).filter(|dst| !held.contains(dst)));
                    }
                    Some(Stmt::Assign { value: Rvalue::Binary { op: BinOp::Add, left, right }, .. })
                        if [left, right].contains(&taken) =>
                    {
                        added = true;
                    }
                    _ => return false,
                }
            }
        }
        detached && added
    }

    /// Whether a sum adds a term and the other operand takes it away again: `x + (total - x).detach()`.
    pub(super) fn is_taken_away(&self, id: StmtId, op: &str, operands: &[Given]) -> bool {
        let (Some("add" | "__add__"), [added, other]) = (op.rsplit('.').next(), operands) else { return false };
        let text = self.files[self.place(id).file].whole();
        let said = |o: &Given| {
            let span = self.part(id, o.part).span;
            &text[span.start as usize..span.end as usize]
        };
        let difference = said(other).strip_suffix(DETACHED).unwrap_or(said(other));
        let inner = difference.strip_suffix(')').unwrap_or(difference);
        let own = inner.strip_suffix(DETACHED).unwrap_or(inner);
        let detached = difference.len() < said(other).len() || own.len() < inner.len() || !self.w.modes.grad;
        detached && own.strip_suffix(said(added)).is_some_and(|rest| rest.trim_end().ends_with('-'))
            || self.was_taken_away(id, other.grad == Tri::No)
    }

    /// The same where the difference has a variable of its own: `rest = (total - x).detach()`, `x + rest`.
    fn was_taken_away(&self, id: StmtId, no_grad: bool) -> bool {
        let func = self.func();
        let Some(Stmt::Assign { value: Rvalue::Binary { left: added, right, .. }, .. }) = statement(func.body(), id)
        else {
            return false;
        };
        let (mut at, mut detached) = (right, no_grad || !self.w.modes.grad);
        for _ in 0..MAX_ORIGIN_STEPS {
            let Operand::Local(local) = at else { return false };
            match assigning(func.body(), *local).as_slice() {
                [Rvalue::CallMethod { base, name, .. }] if name == "detach" => (at, detached) = (base, true),
                [Rvalue::Use(from)] => at = from,
                [Rvalue::Binary { op: BinOp::Sub, right: taken, .. }] => {
                    let cut = detached_from(func, taken);
                    return (detached || cut.is_some()) && cut.unwrap_or(taken) == added;
                }
                _ => return false,
            }
        }
        false
    }
}
