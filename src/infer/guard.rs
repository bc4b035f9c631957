//! Roots that are tests: code that expects to fail, in `try` too, and code that replaces what communicates. In: a place. Out: whether a
//! finding there is news. Never: what is wrong there. Next: `machine.rs`, which asks before it reports.

use super::finding::FindingKind;
use super::machine::Machine;
use crate::ir::{Block, Func, Stmt, StmtId};
use crate::project::FuncRef;
use crate::source::{FileId, Place};
use crate::types::{Origin, Reason};

/// How a test replaces functions, and the words for those that communicate.
const PATCHES: &[&str] = &["monkeypatch.setattr(", "mock.patch", "@patch", "with patch(", " patch.object("];
const COMMUNICATES: &[&str] = &["dist", "parallel", "gather", "reduce", "scatter", "all_to_all", "world_size", "rank"];

/// What the text of a function says of exceptions and of what it replaces; found once for all findings below it.
#[derive(Clone, Copy, Debug)]
pub struct Says {
    raises: bool,
    patches: bool,
}

impl Machine<'_> {
    /// Whether an exception at a place of the function under execution is expected, there or by one of its callers; of what raises at run
    /// time also whether it is caught.
    pub fn is_expected(&mut self, place: Place, raises: bool) -> bool {
        let mut at = Some(place);
        for i in (0..self.stack.len()).rev() {
            let (called, call) = (self.stack[i].func, self.stack[i].call);
            let (func, file) = (self.project.func(called), self.project.file(called.module));
            let may = raises || self.says(called).raises;
            let here = at.is_some_and(|place| place.file == file);
            if may && here && at.is_some_and(|place| self.catches(func, file, func.body(), (place, raises))) {
                return true;
            }
            at = call;
        }
        false
    }

    /// Whether the root replaces what communicates by something else, as tests do: what it runs is not what its callees say.
    pub fn is_patched(&mut self) -> bool {
        self.stack.first().map(|root| root.func).is_some_and(|root| self.says(root).patches)
    }

    /// Whether a test is under execution, or what stands beside it for its sake: the constants that it makes stand for whatever it likes, and
    /// may be each rank's own part.
    pub fn is_made_up(&self) -> bool {
        let (Some(root), Some(here)) = (self.stack.first(), self.stack.last()) else { return false };
        root.func.module == here.func.module && self.project.func(root.func).name.starts_with("test_")
    }

    /// Whether what a collective is given is a leaf that is written out in numbers, to see its gradient: it is equal on all ranks for a trial.
    pub fn is_trial(&self, kind: &FindingKind) -> bool {
        let FindingKind::CollectiveSource { operand, .. } = kind else { return false };
        let mut at = operand.state.origin.as_ref();
        while let Some(Origin { reason: Reason::Computed, from: Some(from), .. }) = at.map(|origin| &**origin) {
            at = Some(from);
        }
        at.filter(|leaf| leaf.reason == Reason::Factory).is_some_and(|leaf| {
            let text = self.files[leaf.place.file].slice(leaf.place.span);
            text.contains('[') && text.contains("requires_grad")
        })
    }

    fn says(&mut self, at: FuncRef) -> Says {
        if let Some(known) = self.says.get(&at) {
            return *known;
        }
        let text = self.files[self.project.file(at.module)].slice(self.project.func(at).span);
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let says = Says { raises: text.contains("aises"), patches: has(PATCHES) && has(COMMUNICATES) };
        self.says.insert(at, says);
        says
    }

    /// Whether a block has the place inside of something that catches exceptions.
    fn catches(&self, func: &Func, file: FileId, block: &Block, (place, raises): (Place, bool)) -> bool {
        block.iter().any(|node| match &node.stmt {
            Stmt::Try { body, handlers, orelse, finally } => {
                (raises && !handlers.is_empty() && contains(func, body, place))
                    || [body, orelse, finally]
                        .into_iter()
                        .chain(handlers)
                        .any(|b| self.catches(func, file, b, (place, raises)))
            }
            Stmt::With { body, .. } => {
                (self.expects(func, file, node.id, raises) && contains(func, body, place))
                    || self.catches(func, file, body, (place, raises))
            }
            other => other.blocks().any(|b| self.catches(func, file, b, (place, raises))),
        })
    }

    /// Whether a context manager is one that takes exceptions: `pytest.raises(...)`, `self.assertRaises(...)`, `suppress(...)`.
    fn expects(&self, func: &Func, file: FileId, id: StmtId, raises: bool) -> bool {
        let Some(span) = func.spans().parts(id).next() else { return raises };
        let text = self.files[file].slice(span);
        text.contains("aises") || raises && text.contains("suppress")
    }
}

/// Whether a statement of a block, or of one inside it, has the place.
fn contains(func: &Func, block: &Block, place: Place) -> bool {
    block.iter().any(|node| {
        let own = func.spans().get(node.id);
        own.is_some_and(|s| s.start <= place.span.start && place.span.end <= s.end)
            || node.stmt.blocks().any(|b| contains(func, b, place))
    })
}
