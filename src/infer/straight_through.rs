//! Values whose forward is one thing and whose gradient is another's: a term is added and, outside of the gradient, taken away again. In: an
//! operation that the rules refuse. Out: whether the line is of this form, so that what is refused cancels. Never: a form that goes over
//! several lines. Source: Bengio et al. 2013, "Estimating or Propagating Gradients Through Stochastic Neurons". Next: `ops.rs`, which asks.

use super::machine::Machine;
use super::ops::Operand;
use crate::ir::StmtId;
use crate::source::Span;
use crate::types::Axis;

/// How a value is taken out of the gradient.
const DETACHED: &str = ".detach()";

impl Machine<'_> {
    /// Whether the line takes away, outside of the gradient, what it adds: `out + bias + (bias / n - bias).detach()`, where the forward is that
    /// of one term and the gradient that of the whole, or `x + (total - x).detach()`, where the forward is the total.
    pub(super) fn is_straight_through(&self, id: StmtId, axis: &Axis, op: &str, operands: &[Operand]) -> bool {
        let place = self.place(id);
        let text = self.files[place.file].whole();
        let (start, end) = (place.span.start as usize, place.span.end as usize);
        let rest = text[end..].lines().next().unwrap_or_default();
        let said = |span: Span| &text[span.start as usize..span.end as usize];
        let is_param = |o: &&Operand| o.ty.get(axis).is_unmarked();
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
        of_whole || untracked && takes_away && of_total()
    }

    /// Whether a sum adds a term and the other operand takes it away again: `x + (total - x).detach()`.
    pub(super) fn is_taken_away(&self, id: StmtId, op: &str, operands: &[Operand]) -> bool {
        let (Some("add" | "__add__"), [added, other]) = (op.rsplit('.').next(), operands) else { return false };
        let text = self.files[self.place(id).file].whole();
        let said = |o: &Operand| {
            let span = self.part(id, o.part).span;
            &text[span.start as usize..span.end as usize]
        };
        let difference = said(other).strip_suffix(DETACHED).unwrap_or(said(other));
        let inner = difference.strip_suffix(')').unwrap_or(difference);
        let own = inner.strip_suffix(DETACHED).unwrap_or(inner);
        let detached = difference.len() < said(other).len() || own.len() < inner.len() || !self.w.modes.grad;
        detached && own.strip_suffix(said(added)).is_some_and(|rest| rest.trim_end().ends_with('-'))
    }
}
