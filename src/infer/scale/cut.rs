//! Batches that are cut by the rank. In: an element by the own rank of what was cut for all ranks. Out: whether tokens of the whole and of the
//! own part may be told apart afterwards: a count may then be of either. Never: which one it is. Next: `eval.rs`, `verdict.rs`.

use super::Run;
use super::eval::TOKENS;
use super::value::{State, Val};
use crate::ir::StmtId;
use crate::source::Name;
use crate::types::Factor;

impl Run<'_> {
    /// Whether the whole of what is cut here has a name still, or was counted before.
    pub fn keeps_whole(&self, id: StmtId, state: &State) -> bool {
        let place = self.place(state, id);
        let file = &self.files[place.file];
        let before = file.whole().get(..place.span.start as usize).unwrap_or("");
        let line = before.rsplit('\n').next().unwrap_or("");
        let root = file.slice(place.span).split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        let rebound = line.split_once(" = ").is_some_and(|(names, _)| names.split(',').any(|name| name.trim() == root));
        !rebound || state.has_counted()
    }
}

impl State {
    /// Whether a number is one of tokens.
    fn has_counted(&self) -> bool {
        let tokens = Factor::Count(Name::from(TOKENS));
        let counts = |v: &Val| matches!(v, Val::Num(n) if n.scale.known().is_some_and(|m| m.power(&tokens) > 0));
        let locals = self.frames.iter().flat_map(|f| f.locals.numbered());
        locals.chain(self.objects.iter().flat_map(|o| o.attrs.numbered())).any(counts)
    }
}
