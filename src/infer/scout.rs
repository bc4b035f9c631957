//! Roots that meet nothing worth executing: found out with few steps, and given up. In: a root. Out: what it yields if it is in vain.
//! Never: an effect on what the other roots yield, except that what a root in vain would have called is executed as a root itself.
//! Next: `root.rs`, `relevance.rs`.

use super::limits::{NEAR, VAIN_STEPS};
use super::machine::Machine;
use super::output::Output;
use super::root::Built;
use super::whole::Assumed;
use crate::project::{ClassRef, FuncRef};

impl Machine<'_> {
    /// What a root yields that enters no function that tells, if it does not follow calls far from such functions that come no nearer. Names
    /// show more calls than there are, so most roots end here; the others are executed in full, with all that they call.
    pub(super) fn scouted(&self, root: FuncRef, class: Option<ClassRef>, shared: Option<&Built>) -> Option<Output> {
        self.vain_allowance(root, shared)?;
        if self.settings.relevance.tells(root) {
            return None;
        }
        let mut scout = Machine::new(self.project, self.rules, self.files, self.settings);
        scout.quiet = self.quiet;
        scout.scouting = true;
        let (output, _) = scout.executed(root, class, shared, &Assumed::default());
        scout.vain_after.is_some().then_some(output)
    }

    /// Steps that a root may take without meeting anything worth executing; no limit where types are asked for, or where the constructor of
    /// its class has met something.
    pub(super) fn vain_allowance(&self, root: FuncRef, shared: Option<&Built>) -> Option<u64> {
        let meets = shared.is_some_and(|built| built.meets);
        let own = self.project.func(root).code.count() as u64;
        (!meets && !self.settings.wants_types).then_some(VAIN_STEPS + own)
    }

    /// Notes that a function is entered: one that tells makes a root worth its steps.
    pub(super) fn noticed(&mut self, func: FuncRef) {
        if self.vain_after.is_some() && self.settings.relevance.tells(func) {
            self.vain_after = None;
        }
    }

    /// Whether nothing more is to be found out: the root has met something, or not within its steps.
    pub(super) fn is_done_scouting(&self) -> bool {
        self.vain_after.map_or(self.scouting, |end| self.budget.spent() > end)
    }

    /// Whether a scout does not follow a call: it is far from what tells, and comes no nearer. Names show ways that are none, so of what is
    /// near each call may be the right one.
    pub(super) fn leads_nowhere(&self, callee: FuncRef) -> bool {
        if !self.scouting {
            return false;
        }
        let relevance = &self.settings.relevance;
        match (relevance.distance(callee), relevance.distance(self.activation())) {
            (Some(there), Some(here)) => there > NEAR && there >= here,
            (None, _) | (_, None) => false,
        }
    }
}
