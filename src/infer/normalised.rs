//! Softmax and its losses over a dim of which each rank has a part, in ordinary code. In: an operation,
//! its rule, the texts of its arguments. Out: a finding. Never: a split dim that is not known to be
//! the one that is normalised; code that puts parts of a softmax together by itself. Next: `ops.rs`.

use super::expr::{CallArg, CallArgs};
use super::finding::FindingKind;
use super::machine::Machine;
use super::ops::OpCall;
use super::practice::expr::Expr;
use super::practice::near::words;
use super::practice::view::View;
use crate::ir::{Const, Rvalue, Stmt, StmtId};
use crate::rules::Role;
use crate::rules::shapes::ShapeRule;
use crate::rules::shards::Whole;
use crate::types::{AxisType, normalize_dim};

/// What code that combines softmaxes of parts, one after the other or by a reduction, computes beside them.
const COMBINES: &[&str] = &["exp", "exp_", "logsumexp", "logaddexp", "lse", "softmax_lse", "amax", "max", "MAX"];

impl Machine<'_> {
    /// Whether an operation that normalises over a dim is given the parts of that dim. Reports it.
    ///
    /// # Errors
    /// A finding was reported.
    pub(super) fn check_normalised(&mut self, id: StmtId, call: &OpCall<'_>, args: &CallArgs) -> Result<(), ()> {
        if call.rule.normalises.is_empty() {
            return Ok(());
        }
        let Some(first) = call.operands.iter().find(|o| o.role == Role::Term) else { return Ok(()) };
        let rank = first.id.and_then(|of| self.w.heap.tensor(of)?.rank());
        let split = first.ty.listed().find(|(_, state)| {
            let dim = state.shard.filter(|_| state.set == AxisType::V).map(i64::from);
            dim.is_some_and(|dim| call.rule.normalises.iter().any(|over| is_over(over, call, args, dim, rank)))
        });
        let Some((axis, _)) = split else { return Ok(()) };
        let axis = axis.clone();
        let reduces = call.rule.shape == ShapeRule::Reduce;
        if self.is_restricted(&axis) || self.combines_parts(id, &call.rule.name) || reduces && !self.is_used_up(id) {
            return Ok(());
        }
        let operand = self.operand_at(id, first, &axis);
        let kind = FindingKind::NormalisedParts { axis, operand, op: call.rule.name.clone() };
        self.report(self.place(id), kind);
        Err(())
    }

    /// Whether the function computes what puts softmaxes of parts together.
    fn combines_parts(&self, id: StmtId, op: &str) -> bool {
        let place = self.place(id);
        let Some(active) = self.stack.last() else { return false };
        let span = self.project.func(active.func).span;
        let text = self.files[place.file].slice(span);
        let own = op.rsplit('.').next().unwrap_or(op);
        // The built-in function compares numbers.
        let of_tensors = |at: &usize, word: &str| word != "max" || text[..*at].ends_with('.');
        let beside =
            |word: &str| words(text, word).filter(|at| of_tensors(at, word)).count() > usize::from(word == own);
        COMBINES.iter().any(|word| beside(word))
    }

    /// Whether nothing but arithmetic, in a function without collectives, reads what a statement gives: nobody puts it together with
    /// what other ranks have.
    fn is_used_up(&self, id: StmtId) -> bool {
        let Some(active) = self.stack.last() else { return false };
        let view = View::new(self.project, self.rules, self.files, active.func);
        let made = view.steps.iter().find_map(|step| match step.stmt {
            // On one way of several the value may be whole, as a test that is not understood says.
            Stmt::Assign { dst, .. } if step.id == id && step.guards.is_empty() => Some(*dst),
            _ => None,
        });
        let read = |step: &usize| match view.value(*step) {
            Some(Rvalue::CallMethod { name, .. }) => self.rules.tensor_method(name).is_some(),
            Some(Rvalue::Binary { .. } | Rvalue::Compare { .. } | Rvalue::Unary { .. }) => true,
            _ => false,
        };
        view.collectives().is_empty()
            && made.is_some_and(|made| !view.readers(made).is_empty() && view.readers(made).iter().all(read))
    }

    /// The last of several sizes is, in the words of the source, the last size of what is reshaped.
    pub(super) fn ends_with_own_size(&self, id: StmtId, args: &CallArgs) -> bool {
        let (Some(base), Some(last)) = (args.args.first(), args.args.last()) else { return false };
        if args.args.len() < 3 {
            return false;
        }
        let (base, last) = (self.same_sizes(self.words(id, base)), self.words(id, last));
        let plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
        let own = |last: &str| last.strip_prefix(base).is_some_and(|size| matches!(size, ".size(-1)" | ".shape[-1]"));
        plain(base) && (own(last) || plain(last) && self.names_last_size(id, base, last))
    }

    /// The value of which a text gives one with the same sizes: `x` of `x.float().contiguous()`.
    fn same_sizes<'t>(&self, text: &'t str) -> &'t str {
        let mut text = text;
        while let Some((base, method)) = text.strip_suffix("()").and_then(|t| t.rsplit_once('.'))
            && self.rules.tensor_method(method).is_some_and(|rule| rule.shape == ShapeRule::Same)
        {
            text = base;
        }
        text
    }

    /// Whether a variable was given the last size of another one, which nothing has changed since: `b, s, v = x.shape`.
    fn names_last_size(&self, id: StmtId, base: &str, name: &str) -> bool {
        let Some(active) = self.stack.last() else { return false };
        let view = View::new(self.project, self.rules, self.files, active.func);
        let local = |name: &str| view.func.locals().ids().find(|l| view.local_name(*l) == name);
        let (Some(of), Some(size)) = (local(base), local(name)) else { return false };
        let here = (0..view.steps.len()).rfind(|step| view.steps[*step].id == id);
        let (Some(here), [made]) = (here, view.defs(size)) else { return false };
        let sizes = |e: &Expr| match e {
            Expr::Attr(x, shape) => shape == "shape" && **x == Expr::Local(of),
            e => {
                let method = |c: &Expr| matches!(c, Expr::Attr(x, _) if **x == Expr::Local(of));
                matches!(e, Expr::Call { callee, .. } if method(callee))
                    && e.call_of("size").is_some_and(<[_]>::is_empty)
            }
        };
        let of_last = |e: &Expr| matches!(e, Expr::Const(Const::Int(-1)));
        let last = match view.steps[*made].stmt {
            Stmt::Unpack { value, before, after, .. } => {
                after.last().or(before.last()) == Some(&size) && sizes(&view.expr(value))
            }
            _ => match view.bound(*made, size) {
                Expr::Item(of, at) => of_last(&at) && sizes(&of),
                e => {
                    let method = matches!(&e, Expr::Call { callee, .. } if matches!(&**callee, Expr::Attr(x, _) if **x == Expr::Local(of)));
                    method && e.call_of("size").is_some_and(|args| matches!(args, [(_, at)] if of_last(at)))
                }
            },
        };
        last && !view.is_param(size) && !view.defs(of).iter().any(|step| (*made..here).contains(step))
    }

    /// How the source writes an argument.
    pub(super) fn words(&self, id: StmtId, arg: &CallArg) -> &str {
        let place = self.part(id, arg.part);
        self.files[place.file].slice(place.span)
    }
}

/// Whether a dim, which counts from the end if it is negative, is one over which the operation normalises.
fn is_over(over: &Whole, call: &OpCall<'_>, args: &CallArgs, dim: i64, rank: Option<usize>) -> bool {
    let given = match over {
        Whole::At(at) => Some(*at),
        Whole::Argument(name) => {
            let param = call.rule.args.index(name);
            param.and_then(|param| call.bound.first(param)).and_then(|at| args.args[at].value.as_int())
        }
        Whole::All | Whole::LastOf(_) => None,
    };
    let Some(given) = given else { return false };
    match rank {
        Some(rank) => normalize_dim(given, rank).is_some_and(|given| normalize_dim(dim, rank) == Some(given)),
        // The classes of a loss are dim 1, which is the last one of what nothing gave further dims.
        None => given == dim || matches!(over, Whole::At(1)) && dim == -1,
    }
}
