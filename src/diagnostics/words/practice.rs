//! Words of families 3xx and 6xx that need no types: gradients that nobody reduces, results that are lost. In: findings. Out: drafts.
//! Never: detection. Next: `mod.rs`.

use super::super::codes;
use super::practice_scales::scales;
use super::{Draft, Words};
use crate::infer::practice::found::Practice;
use crate::source::Label;

impl Words<'_> {
    pub fn practice(&self, practice: &Practice) -> Draft {
        match practice {
            Practice::LostCopy { collective, method, original } => {
                let x = self.plain(*original);
                let title = format!(
                    "the result of `{collective}` is lost: `{x}.{method}()` may be a copy, and nothing keeps it"
                );
                let mut draft = Draft::new(&codes::LOST_RESULT, title);
                draft.primary = "written to the copy".to_string();
                draft
                    .labels
                    .push(Label { place: *original, message: "keeps its own value where a copy is made".to_string() });
                draft.help.push(format!("bind it first: `{x} = {x}.{method}()`, then pass `{x}`"));
                draft
            }
            Practice::Placements(mistake) => self.placements(mistake),
            Practice::Scales(mistake) => scales(mistake),
            Practice::UnusedResult { collective } => {
                let title = format!(
                    "the result of `{collective}` is not used: it returns the value and changes nothing in place"
                );
                let mut draft = Draft::new(&codes::LOST_RESULT, title);
                draft.primary = "thrown away".to_string();
                draft.help.push("assign it to the variable that is used afterwards".to_string());
                draft
            }
        }
    }
}
