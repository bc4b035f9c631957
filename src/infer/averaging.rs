//! Averages of what every rank has already. In: a reduction of equal values in a function. Out: whether the function reads the number of
//! ranks of its group, by which such a sum is divided or was divided before. Never: the number of ranks of another group.
//! Next: `collective.rs`, which asks.

use super::groups::is_world;
use super::machine::Machine;
use super::practice::expr::Expr;
use super::practice::view::View;
use super::scale::groups::of_size_name;
use crate::ir::{Operand, Rvalue};
use crate::rules::{Entry, Gives};
use crate::types::AxisSet;

impl Machine<'_> {
    /// Whether the function under execution reads how many ranks take part in a reduction over these axes.
    pub(super) fn reads_number_of_ranks(&self, axes: &AxisSet) -> bool {
        let Some(active) = self.stack.last() else { return false };
        let view = View::new(self.project, self.rules, self.files, active.func);
        let counts = |of: &AxisSet| is_world(of) || of.iter().any(|axis| axes.contains(axis));
        let named = |name: &str| of_size_name(name).is_some_and(|of| counts(&of));
        (0..view.steps.len()).any(|step| {
            let value = view.value(step);
            let called = match value.and_then(|v| view.ruled(v)) {
                Some((_, Some(Entry::Group(rule)))) => {
                    let of: AxisSet = rule.axes.iter().map(|a| self.settings.canonical(a)).collect();
                    rule.gives == Gives::Size && (rule.axes.is_empty() || counts(&of))
                }
                Some((_, Some(Entry::Intrinsic(rule)))) => rule.does == "get-world-size",
                _ => false,
            };
            let member = match value {
                Some(Rvalue::Attr { name, .. }) => named(name),
                Some(Rvalue::CallMethod { base, name, args }) => match (name.as_str(), view.expr(base)) {
                    ("size", Expr::Local(of)) => args.is_empty() && is_group(view.local_name(of)),
                    ("size", of) => args.is_empty() && of.last_name().is_some_and(is_group),
                    (name, _) => named(name),
                },
                _ => false,
            };
            called
                || member
                || view.reads(step).iter().any(|operand| match operand {
                    Operand::Local(local) => named(view.local_name(*local)),
                    Operand::Global(name) => named(name),
                    Operand::Const(_) => false,
                })
        })
    }
}

/// A name of a process group or mesh.
fn is_group(name: &str) -> bool {
    ["group", "mesh", "pg"].iter().any(|word| name.to_lowercase().contains(word))
}
